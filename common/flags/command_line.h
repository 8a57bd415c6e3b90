// SPDX-License-Identifier: Apache-2.0
// Reads a program's flags in the forms that people type, and prints their help.
//
//   const std::vector<std::string> left =
//       flags::ParseCommandLine({argv + 1, argv + argc}, {.program = "foretoken_verifier",
//                                                         .summary = "Serves a model's text.",
//                                                         .arguments = "[DIRECTORY]",
//                                                         .flag_files = {"verifier_service/main.cc"}});
//
// The flags are Abseil's, with these additions. A name may have dashes in place of underscores. A flag of type bool or
// optional<bool> may stand alone, and --noNAME or --no-NAME turns it off; or it has a value, as --NAME=false. --help,
// -h and --helpshort print the usage and the program's own flags, and --version prints the version. Each of these ends
// the process with code 0. If an argument cannot be read, the program prints one line that names it and what the flag
// takes, and ends with code 1. It does the same at a flag of another command. Abseil's --flagfile, --fromenv,
// --tryfromenv and --undefok are unknown flags here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::flags {

struct CommandLine {
  std::string program;                          // "foretoken generate"
  std::string summary;                          // a sentence
  std::string arguments;                        // the arguments that may follow the flags
  std::vector<std::string> flag_files;          // source files whose flags the program has, as ends of paths
  std::vector<std::string> flags;               // names of single flags that it has besides
  std::vector<std::string> command_flag_files;  // of all commands, if the program is one of several
  std::vector<std::string> needs_value;         // flags whose value cannot be empty
};

// Returns the arguments that are not flags. `arguments` must not have the program's own name.
std::vector<std::string> ParseCommandLine(const std::vector<std::string>& arguments, const CommandLine& line);

// Returns the arguments in Abseil's form. INVALID_ARGUMENT names a flag that does not exist, and a flag with a similar
// spelling, or a flag of another command.
absl::StatusOr<std::vector<std::string>> AbseilArguments(const std::vector<std::string>& arguments,
                                                         const CommandLine& line = {});

// "foretoken_verifier 0.1.0"
std::string VersionLine(const std::string& program);

// The text that --help prints.
std::string HelpText(const CommandLine& line);

}  // namespace foretoken::flags
