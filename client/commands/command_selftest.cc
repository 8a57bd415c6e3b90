// SPDX-License-Identifier: Apache-2.0
// foretoken selftest: sees on this machine that speculation changes no token of a model, at every width.
#include <iostream>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/offline_flags.h"
#include "client/commands/prompts.h"
#include "client/offline/self_test.h"
#include "common/base/status_macros.h"

ABSL_DECLARE_FLAG(std::string, prompt_file);
ABSL_FLAG(int32_t, tokens, 64, "Tokens to generate for each prompt, 2 to 2048");
ABSL_FLAG(int32_t, max_width, 32,
          "Rows that a step verifies of a text: every number from 1 to this, at most 32, is tried");

namespace foretoken::client {
namespace {

const std::vector<std::string>& OwnPrompts() {
  static const auto* const kPrompts =
      new std::vector<std::string>{"Once upon a time",
                                   "def fibonacci(n):\n",
                                   "{\"name\": \"Ada\", \"born\": 1815, \"languages\": [",
                                   "The three laws of thermodynamics are:\n1.",
                                   "SELECT name, count(*) FROM orders WHERE",
                                   "Dear Sir or Madam,\n\nI am writing to",
                                   "0, 1, 1, 2, 3, 5, 8, 13,",
                                   "A"};
  return *kPrompts;
}

absl::StatusOr<SelfTestOptions> SelfTestOptionsFromFlags(const std::vector<std::string>& arguments) {
  SelfTestOptions options = {.num_tokens = absl::GetFlag(FLAGS_tokens), .max_width = absl::GetFlag(FLAGS_max_width)};
  if (options.num_tokens < 2 || options.num_tokens > 2048) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens: expected 2 to 2048, got ", options.num_tokens));
  }
  if (options.max_width < 1 || options.max_width > 32) {
    return absl::InvalidArgumentError(absl::StrCat("--max_width: expected 1 to 32, got ", options.max_width));
  }
  if (arguments.empty() && absl::GetFlag(FLAGS_prompt_file).empty()) {
    options.prompts = OwnPrompts();
  } else {
    FT_ASSIGN_OR_RETURN(options.prompts, PromptsFromFlags(arguments));
  }
  return options;
}

std::string Shown(const std::optional<int32_t>& token_id) {
  return token_id.has_value() ? absl::StrCat(*token_id) : "the end";
}

void PrintWidth(const WidthResult& result) {
  std::cout << absl::StrFormat("%-11g %5d %7d %6d %5d %8d  ", result.temperature, result.width, result.rows_reached,
                               result.num_tokens, result.num_steps, result.num_verified)
            << (result.differences.empty() ? "equal" : "DIFFERENT") << std::endl;
  for (const Difference& difference : result.differences) {
    std::cout << "  prompt " << difference.prompt + 1 << ", token " << difference.position + 1 << ": "
              << Shown(difference.plain_id) << " without speculation, " << Shown(difference.speculated_id) << " with it"
              << std::endl;
  }
}

absl::Status SelfTest(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const OfflineModel model_options, OfflineModelFromFlags());
  FT_ASSIGN_OR_RETURN(const SelfTestOptions options, SelfTestOptionsFromFlags(arguments));
  FT_ASSIGN_OR_RETURN(model::RunnableModel model, LoadOffline(model_options));
  std::cout << Describe(model_options, model) << "\n"
            << options.prompts.size() << " prompts, each alone without speculation, and many together with it\n"
            << "temperature width reached tokens steps verified" << std::endl;
  FT_ASSIGN_OR_RETURN(const std::vector<WidthResult> results, RunSelfTest(model, options, PrintWidth));
  int64_t num_texts = 0, num_different = 0, num_verified = 0;
  std::optional<int32_t> missed_width;
  for (const WidthResult& result : results) {
    num_texts += static_cast<int64_t>(options.prompts.size());
    num_different += static_cast<int64_t>(result.differences.size());
    num_verified += result.num_verified;
    if (result.rows_reached < result.width && !missed_width) missed_width = result.width;
  }
  if (num_different > 0) {
    return absl::DataLossError(absl::StrCat(num_different, " of ", num_texts, " texts differ with speculation"));
  }
  if (missed_width) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens: expected texts in which a step verifies ", *missed_width,
                                                   " rows (or a smaller --max_width), got ", options.num_tokens,
                                                   " tokens"));
  }
  std::cout << num_texts << " of " << num_texts << " texts are equal, " << num_verified << " guesses verified"
            << std::endl;
  return absl::OkStatus();
}

}  // namespace

int RunSelfTest(const std::vector<std::string>& arguments) { return ExitCode(SelfTest(arguments)); }

}  // namespace foretoken::client
