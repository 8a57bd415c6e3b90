// SPDX-License-Identifier: Apache-2.0
// How a program reads its flags, as people type them, and how it shows them.
//
//   const std::vector<std::string> left =
//       flags::ParseCommandLine({argv + 1, argv + argc}, {.program = "foretoken_verifier",
//                                                         .summary = "Serves a model's text.",
//                                                         .arguments = "[DIRECTORY]",
//                                                         .flag_files = {"verifier_service/main.cc"}});
//
// Abseil's flags, with these liberties. A name may have dashes for its underscores. A flag that is true or false, even
// one that may be unset, may stand alone, and is turned off by --noNAME or --no-NAME; or it has a value, as
// --NAME=false. --help, -h and --helpshort print the usage and the flags of `flag_files`, --version the version; both
// end the process with 0. What cannot be read is named in one line, and ends it with 1.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::flags {

struct CommandLine {
  std::string program;                  // "foretoken generate"
  std::string summary;                  // a sentence
  std::string arguments;                // what may follow the flags
  std::vector<std::string> flag_files;  // ends of paths
};

// The arguments that are no flags. `arguments` lacks the program's own name.
std::vector<std::string> ParseCommandLine(const std::vector<std::string>& arguments, const CommandLine& line);

// The arguments as Abseil reads them. INVALID_ARGUMENT names a flag that does not exist, and one that is spelled alike.
absl::StatusOr<std::vector<std::string>> AbseilArguments(const std::vector<std::string>& arguments);

// "foretoken_verifier 0.1.0"
std::string VersionLine(const std::string& program);

// What --help prints.
std::string HelpText(const CommandLine& line);

}  // namespace foretoken::flags
