// SPDX-License-Identifier: Apache-2.0
// foretoken: talks to a verifier from the command line.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"

namespace {

struct Command {
  const char* name;
  const char* arguments;
  const char* summary;
  int (*run)(const std::vector<std::string>&);
  std::vector<const char*> flag_files;  // whose flags `help COMMAND` shows
};

const std::vector<Command>& Commands() {
  using namespace foretoken::client;  // NOLINT(google-build-using-namespace): the Run functions
  static const auto* const kCommands = new std::vector<Command>{
      {"generate",
       "[PROMPT]",
       "stream the text that follows a prompt (argument, --prompt_file or standard input)",
       RunGenerate,
       {"connect_flags.cc", "request_flags.cc", "prompts.cc", "color_flag.cc", "commands.cc"}},
      {"explain",
       "[PROMPT]",
       "run one request and show what each of its steps guessed, computed, accepted and took",
       RunExplain,
       {"connect_flags.cc", "request_flags.cc", "prompts.cc", "color_flag.cc", "command_explain.cc", "commands.cc"}},
      {"tokenize",
       "[--add_special_tokens=BOOL] [--parse_special_tokens=BOOL] [TEXT]",
       "show the tokens of a text",
       RunTokenize,
       {"connect_flags.cc", "prompts.cc", "commands.cc"}},
      {"info", "", "show what the server serves", RunInfo, {"connect_flags.cc", "commands.cc"}},
      {"bench",
       "[PROMPT]",
       "measure many requests at a time, prompts from lines of --prompt_file",
       RunBench,
       {"connect_flags.cc", "request_flags.cc", "prompts.cc", "command_bench.cc"}}};
  return *kCommands;
}

const Command* FindCommand(const std::string& name) {
  const auto& commands = Commands();
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::string Usage() {
  std::string usage = "usage: foretoken COMMAND [--flag=value]... [ARGUMENT]\n\n";
  for (const Command& command : Commands()) absl::StrAppend(&usage, "  ", command.name, "\t", command.summary, "\n");
  absl::StrAppend(&usage, "  help\tshow a command's flags: foretoken help COMMAND\n\n",
                  "example: foretoken generate --target=localhost:50051 --max_tokens=64 'def main():'\n");
  return usage;
}

// Makes --help speak of this command only.
void SetHelp(const Command& command) {
  absl::SetProgramUsageMessage(
      absl::StrCat(command.summary, "\n\nusage: foretoken ", command.name, " [--flag=value]... ", command.arguments));
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [&command](absl::string_view file) {
    return std::any_of(command.flag_files.begin(), command.flag_files.end(),
                       [&](const char* name) { return absl::EndsWith(file, absl::StrCat("client/", name)); });
  };
  absl::SetFlagsUsageConfig(config);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = argc > 1 ? argv[1] : "";
  const bool is_help = name == "help" || name == "--help" || name == "-h" || name.empty();
  if (is_help && argc <= 2) {
    (name.empty() ? std::cerr : std::cout) << Usage();
    return name.empty() ? 2 : 0;
  }
  if (is_help) name = argv[2];
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    std::cerr << "foretoken: no command \"" << name << "\"\n\n" << Usage();
    return 2;
  }
  SetHelp(*command);
  std::vector<char*> flags = {argv[0]};
  flags.insert(flags.end(), argv + (is_help ? 3 : 2), argv + argc);
  std::string help = "--help";
  if (is_help) flags.push_back(help.data());
  const std::vector<char*> left = absl::ParseCommandLine(static_cast<int>(flags.size()), flags.data());
  return command->run({left.begin() + 1, left.end()});
}
