// SPDX-License-Identifier: Apache-2.0
#include "client/commands/prompts.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <istream>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/request_flags.h"
#include "client/prompt_lines.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

ABSL_FLAG(std::string, prompt_file, "",
          "File with the prompt, - is standard input; bench, compare and selftest read lines of {\"prompt\": TEXT}");
ABSL_FLAG(std::vector<std::string>, prompt_tokens, {}, "The prompt as token ids, as ID,ID");

namespace foretoken::client {
namespace {

// A device like /dev/zero has no end.
absl::StatusOr<std::string> ReadWhole(absl::string_view source, const std::string& path, std::istream& from) {
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  do {
    from.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<size_t>(from.gcount()));
    if (text.size() > base::kMaxReadBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": ", path, ": expected at most ", base::kMaxReadBytes, " bytes, got more"));
    }
  } while (from);
  // std::cin reads by way of stdin, and takes an error there for the end.
  if (from.bad() || (&from == &std::cin && std::ferror(stdin) != 0)) {
    return absl::UnavailableError(absl::StrCat(source, ": cannot read ", path, " to its end"));
  }
  return text;
}

// Whether the prompt may be read from the path. Standard input can be read once, and the request is read before.
absl::Status CheckPromptFile(const std::string& path) {
  const std::optional<std::string> flag = RequestFlagOnStandardInput();
  if (path != "-" || !flag.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--prompt_file: expected a file or a prompt argument, got standard input, which is read for ", *flag));
}

}  // namespace

absl::StatusOr<std::string> ReadText(absl::string_view source, const std::string& path) {
  if (path == "-") return ReadWhole(source, path, std::cin);
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  // A directory opens like a file and throws in reading.
  if (!file || std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat(source, ": cannot read ", path));
  }
  return ReadWhole(source, path, file);
}

absl::Status SetPromptFromFlags(const std::vector<std::string>& arguments, foretoken::v1::GenerateRequest& request) {
  const std::string file = absl::GetFlag(FLAGS_prompt_file);
  const std::vector<std::string> tokens = absl::GetFlag(FLAGS_prompt_tokens);
  const int num_sources = (arguments.empty() ? 0 : 1) + (file.empty() ? 0 : 1) + (tokens.empty() ? 0 : 1);
  if (num_sources > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one prompt, got ", num_sources, " among argument, --prompt_file and --prompt_tokens"));
  }
  if (!arguments.empty()) {
    request.set_text(absl::StrJoin(arguments, " "));
    return absl::OkStatus();
  }
  if (tokens.empty()) {
    const std::string path = file.empty() ? "-" : file;
    FT_RETURN_IF_ERROR(CheckPromptFile(path));
    if (file.empty() && isatty(STDIN_FILENO) == 1) {
      std::cerr << "reading the prompt from standard input; Ctrl-D ends it" << std::endl;
    }
    FT_ASSIGN_OR_RETURN(*request.mutable_text(), ReadText("--prompt_file", path));
    return absl::OkStatus();
  }
  for (const std::string& token : tokens) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(token, &id)) {
      return absl::InvalidArgumentError(absl::StrCat("--prompt_tokens: expected token ids, got \"", token, "\""));
    }
    request.mutable_tokens()->add_ids(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PromptsFromFlags(const std::vector<std::string>& arguments) {
  const std::string file = absl::GetFlag(FLAGS_prompt_file);
  if (arguments.empty() == file.empty()) {
    return absl::InvalidArgumentError("expected either a prompt argument or --prompt_file");
  }
  if (!arguments.empty()) return std::vector<std::string>{absl::StrJoin(arguments, " ")};
  FT_RETURN_IF_ERROR(CheckPromptFile(file));
  FT_ASSIGN_OR_RETURN(const std::string text, ReadText("--prompt_file", file));
  return ParsePromptLines(text);
}

}  // namespace foretoken::client
