// SPDX-License-Identifier: Apache-2.0
// foretoken: a command-line client of a verifier, and what can be done with a model without one.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "common/base/standard_streams.h"
#include "common/flags/command_line.h"
#include "common/rpc/library_log.h"
#include "common/telemetry/logging.h"
#include "kernels/check.h"

namespace {

struct Command {
  const char* name;
  const char* arguments;
  const char* summary;
  int (*run)(const std::vector<std::string>&);
  std::vector<std::string> flag_files;  // the command has the flags of these files
  std::vector<std::string> flags = {};  // and these single flags of other files
};

const std::vector<Command>& Commands() {
  using namespace foretoken::client;  // NOLINT(google-build-using-namespace): the Run functions
  static const auto* const kCommands = new std::vector<Command>{
      {"generate",
       "[PROMPT]",
       "stream the text that follows a prompt (argument, --prompt_file or standard input)",
       RunGenerate,
       {"client/commands/connect_flags.cc", "client/commands/request_flags.cc", "client/commands/model_flag.cc",
        "client/commands/prompts.cc", "client/commands/color_flag.cc", "client/commands/traced_call.cc",
        "client/commands/commands.cc"}},
      {"chat",
       "",
       "a conversation with the model; each line of standard input is a message",
       RunChat,
       {"client/commands/connect_flags.cc", "client/commands/request_flags.cc", "client/commands/model_flag.cc",
        "client/commands/color_flag.cc", "client/commands/command_chat.cc"}},
      {"explain",
       "[PROMPT]",
       "run one request and show the guesses, the rows, the accepted tokens and the time of each step",
       RunExplain,
       {"client/commands/connect_flags.cc", "client/commands/request_flags.cc", "client/commands/model_flag.cc",
        "client/commands/prompts.cc", "client/commands/color_flag.cc", "client/commands/command_explain.cc",
        "client/commands/commands.cc"}},
      {"tokenize",
       "[TEXT]",
       "show the tokens of a text",
       RunTokenize,
       {"client/commands/connect_flags.cc", "client/commands/model_flag.cc", "client/commands/commands.cc"},
       {"prompt_file", "add_special_tokens", "parse_special_tokens"}},
      {"info",
       "",
       "show the served model, its limits and its proposers",
       RunInfo,
       {"client/commands/connect_flags.cc", "client/commands/commands.cc"}},
      {"check",
       "",
       "see whether the server serves: a text, the same without speculation, and a call that is cancelled",
       RunCheck,
       {"client/commands/connect_flags.cc"}},
      {"compare",
       "[PROMPT]",
       "write each text with speculation off and on, side by side; prompts from lines of --prompt_file",
       RunCompare,
       {"client/commands/connect_flags.cc", "client/commands/request_flags.cc", "client/commands/model_flag.cc",
        "client/commands/color_flag.cc", "client/commands/command_compare.cc"},
       {"prompt_file"}},
      {"bench",
       "[PROMPT]",
       "measure many requests at a time; prompts from lines of --prompt_file",
       RunBench,
       {"client/commands/connect_flags.cc", "client/commands/request_flags.cc", "client/commands/model_flag.cc",
        "client/commands/load_flags.cc", "client/commands/command_bench.cc"},
       {"prompt_file"}},
      {"simulate",
       "PROFILE",
       "how many verifiers and proposers a load needs, from a file that bench --profile wrote",
       RunSimulate,
       {"client/commands/load_flags.cc", "client/commands/command_simulate.cc", "client/commands/commands.cc"}},
      {"quantize",
       "DIRECTORY NEW_DIRECTORY",
       "write a checkpoint again with weights of 4 or 8 bits; calls no server",
       RunQuantize,
       {"client/commands/command_quantize.cc"}},
      {"perplexity",
       "--model=DIRECTORY FILE",
       "how well a model predicts a text, before it was quantised and after; calls no server",
       RunPerplexity,
       {"client/commands/model_flag.cc", "client/commands/offline_flags.cc", "client/commands/command_perplexity.cc",
        "client/commands/commands.cc"}},
      {"selftest",
       "--model=DIRECTORY [PROMPT]",
       "see on this machine that speculation changes no token, at every width; calls no server",
       RunSelfTest,
       {"client/commands/model_flag.cc", "client/commands/offline_flags.cc", "client/commands/command_selftest.cc"},
       {"prompt_file"}}};
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
  absl::StrAppend(&usage, "  help\tshow a command's flags: foretoken help COMMAND\n",
                  "  --version\tshow this program's version\n\n",
                  "example: foretoken generate --target=localhost:50051 --max_tokens=64 'def main():'\n");
  return usage;
}

std::vector<std::string> FlagFilesOfAllCommands() {
  std::vector<std::string> files;
  for (const Command& command : Commands()) {
    files.insert(files.end(), command.flag_files.begin(), command.flag_files.end());
  }
  return files;
}

// The description of a command for the parser and the help text.
foretoken::flags::CommandLine CommandLineOf(const Command& command) {
  return {.program = absl::StrCat("foretoken ", command.name),
          .summary = command.summary,
          .arguments = command.arguments,
          .flag_files = command.flag_files,
          .flags = command.flags,
          .command_flag_files = FlagFilesOfAllCommands(),
          // Without its value a constraint or a protection would be none, and nobody would see that a variable of the
          // shell was unset.
          .needs_value = {"json_schema", "regex", "ebnf", "choices", "structural_tag", "allowed_token_ids",
                          "banned_token_ids", "numerics_fingerprint", "tenant", "tls_ca", "tls_certificate", "tls_key",
                          "token_file"}};
}

bool Is(const std::string& word, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

int Run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    std::cerr << Usage();
    return 2;
  }
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (Is(name, {"--version", "-version", "version"})) {
    std::cout << foretoken::flags::VersionLine("foretoken") << std::endl;
    return 0;
  }
  const bool is_help = Is(name, {"help", "--help", "-help", "-h", "--helpshort"});
  if (is_help && arguments.empty()) {
    std::cout << Usage();
    return 0;
  }
  if (is_help) name = arguments.front();
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    std::cerr << "foretoken: no command \"" << name << "\"\n\n" << Usage();
    return 2;
  }
  if (is_help) {
    std::cout << foretoken::flags::HelpText(CommandLineOf(*command));
    return 0;
  }
  return command->run(foretoken::flags::ParseCommandLine(arguments, CommandLineOf(*command)));
}

}  // namespace

int main(int argc, char** argv) {
  foretoken::base::OpenStandardStreams();
  FT_CHECK(foretoken::telemetry::InitLogging("warning").ok());  // standard output is for texts and JSON alone
  foretoken::rpc::DropLibraryLogs();
  const int code = Run({argv + 1, argv + argc});
  // A script that keeps the output must not take a full disk for success.
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return code;
  std::cerr << "foretoken: cannot write to standard output; is its disk full, or has its reader ended?" << std::endl;
  return code == 0 ? 1 : code;
}
