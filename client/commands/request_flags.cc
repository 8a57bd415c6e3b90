// SPDX-License-Identifier: Apache-2.0
#include "client/commands/request_flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/model_flag.h"
#include "client/commands/prompts.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace {
template <typename T>
using Optional = std::optional<T>;
using List = std::vector<std::string>;
}  // namespace

ABSL_FLAG(std::string, request_id, "", "Name of the request; default: the server makes one");
ABSL_FLAG(std::string, tenant, "", "Tenant of the request; all requests without one belong to one tenant");
ABSL_FLAG(int32_t, priority, 0, "Priority among waiting requests, -100 to 100; the highest goes first");

ABSL_FLAG(Optional<bool>, add_special_tokens, std::nullopt,
          "Whether the tokenizer's beginning and end tokens are added around the prompt");
ABSL_FLAG(Optional<bool>, parse_special_tokens, std::nullopt,
          "Whether the spelling of a special token inside the prompt becomes that token");
ABSL_FLAG(Optional<uint32_t>, truncate_prompt_tokens, std::nullopt,
          "Keep only this many tokens of the prompt, the last ones");

ABSL_FLAG(Optional<float>, temperature, std::nullopt,
          "Temperature of the sampling; 0 takes the most likely token each time");
ABSL_FLAG(Optional<uint32_t>, top_k, std::nullopt, "Keep the k most likely tokens; 0 keeps all");
ABSL_FLAG(Optional<float>, top_p, std::nullopt, "Keep the most likely tokens that together reach this probability");
ABSL_FLAG(Optional<float>, min_p, std::nullopt,
          "Keep tokens whose probability is at least this share of the largest one");
ABSL_FLAG(Optional<float>, repetition_penalty, std::nullopt,
          "Above 1: tokens of the prompt and of the output become less likely; 1 is off");
ABSL_FLAG(Optional<float>, presence_penalty, std::nullopt,
          "Number to subtract from the logit of every token that was generated before");
ABSL_FLAG(Optional<float>, frequency_penalty, std::nullopt,
          "Number to subtract from the logit of a token, once for each time that it was generated before");
ABSL_FLAG(List, logit_bias, {}, "Numbers to add to the logits of token ids, as ID=BIAS,ID=BIAS");
ABSL_FLAG(List, allowed_token_ids, {}, "The only token ids that can be drawn, as ID,ID");
ABSL_FLAG(List, banned_token_ids, {}, "Token ids that cannot be drawn, as ID,ID");
ABSL_FLAG(
    Optional<uint64_t>, seed, std::nullopt,
    "Seed of the sampling; the same request with the same seed gives the same output, with rejection sampling only if "
    "speculation is off");
ABSL_FLAG(Optional<uint32_t>, n, std::nullopt, "Number of samples of the prompt");

ABSL_FLAG(Optional<uint32_t>, max_tokens, std::nullopt, "Generate at most this many tokens");
ABSL_FLAG(Optional<uint32_t>, min_tokens, std::nullopt, "Generate at least this many tokens");
ABSL_FLAG(std::string, stop, "", "Text that ends the output; several texts as a JSON list: '[\"\\n\\n\", \"def \"]'");
ABSL_FLAG(List, stop_token_ids, {}, "Token ids that end the output, as ID,ID");
ABSL_FLAG(Optional<bool>, ignore_eos, std::nullopt, "Go on past the model's end-of-text tokens");
ABSL_FLAG(Optional<bool>, include_stop_string, std::nullopt, "Keep the matched stop text in the output");

ABSL_FLAG(Optional<uint32_t>, logprobs, std::nullopt,
          "Report the log-probability of each token and of this many most likely ones");
ABSL_FLAG(Optional<uint32_t>, prompt_logprobs, std::nullopt,
          "Report the log-probability of each token of the prompt and of this many most likely ones");
ABSL_FLAG(Optional<bool>, echo, std::nullopt, "Print the prompt first");
ABSL_FLAG(Optional<bool>, skip_special_tokens, std::nullopt, "Leave special tokens out of the text");

ABSL_FLAG(std::string, speculation, "",
          "auto, off or always, which verifies as many guesses as allowed in every step; it changes the speed only");
ABSL_FLAG(List, proposers, {}, "The only proposers that may guess, as METHOD,METHOD; default: all");
ABSL_FLAG(Optional<uint32_t>, max_tree_nodes, std::nullopt, "Verify at most this many guesses in a step");
ABSL_FLAG(std::string, prediction, "", "The expected output; the server takes guesses from it");
ABSL_FLAG(std::string, prediction_file, "",
          "A file with the expected output, for example the text before an edit; - is standard input");
ABSL_FLAG(std::string, json_schema, "", "The output is JSON that is valid under this schema, or under that of @FILE");
ABSL_FLAG(bool, any_json, false, "The output is any JSON");
ABSL_FLAG(std::string, regex, "", "The output matches this regular expression as a whole");
ABSL_FLAG(std::string, ebnf, "", "The output is a text of this grammar in GBNF, or of that of @FILE");
ABSL_FLAG(std::string, choices, "", "The output is one of these texts, as a JSON list: '[\"yes\", \"no\"]'");
ABSL_FLAG(std::string, structural_tag, "", "The output follows this structural tag of XGrammar, or that of @FILE");
ABSL_FLAG(std::string, verification, "", "Rule that verifies guesses: keyed_draw or rejection_sampling");
ABSL_FLAG(std::string, numerics_fingerprint, "",
          "Fail unless the server has this numerics fingerprint, as `foretoken info` shows it");

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;

absl::Status BadFlag(absl::string_view flag, absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected ", expected, ", got \"", got, "\""));
}

absl::Status AddTokenIds(absl::string_view flag, const List& entries, google::protobuf::RepeatedField<uint32_t>& ids) {
  for (const std::string& entry : entries) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(entry, &id)) return BadFlag(flag, "token ids", entry);
    ids.Add(id);
  }
  return absl::OkStatus();
}

absl::Status SetSampling(foretoken::v1::SamplingOptions& sampling) {
  if (auto value = absl::GetFlag(FLAGS_temperature)) sampling.set_temperature(*value);
  if (auto value = absl::GetFlag(FLAGS_top_k)) sampling.set_top_k(*value);
  if (auto value = absl::GetFlag(FLAGS_top_p)) sampling.set_top_p(*value);
  if (auto value = absl::GetFlag(FLAGS_min_p)) sampling.set_min_p(*value);
  if (auto value = absl::GetFlag(FLAGS_repetition_penalty)) sampling.set_repetition_penalty(*value);
  if (auto value = absl::GetFlag(FLAGS_presence_penalty)) sampling.set_presence_penalty(*value);
  if (auto value = absl::GetFlag(FLAGS_frequency_penalty)) sampling.set_frequency_penalty(*value);
  if (auto value = absl::GetFlag(FLAGS_seed)) sampling.set_seed(*value);
  if (auto value = absl::GetFlag(FLAGS_n)) sampling.set_n(*value);
  for (const std::string& entry : absl::GetFlag(FLAGS_logit_bias)) {
    const std::pair<std::string, std::string> id_and_bias = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    uint32_t id = 0;
    float bias = 0;
    if (!absl::SimpleAtoi(id_and_bias.first, &id) || !absl::SimpleAtof(id_and_bias.second, &bias)) {
      return BadFlag("logit_bias", "ID=BIAS", entry);
    }
    (*sampling.mutable_logit_bias())[id] = bias;
  }
  FT_RETURN_IF_ERROR(
      AddTokenIds("allowed_token_ids", absl::GetFlag(FLAGS_allowed_token_ids), *sampling.mutable_allowed_token_ids()));
  return AddTokenIds("banned_token_ids", absl::GetFlag(FLAGS_banned_token_ids), *sampling.mutable_banned_token_ids());
}

// Adds the texts of a JSON list.
absl::Status AddTexts(absl::string_view flag, const std::string& value, absl::string_view expected,
                      google::protobuf::RepeatedPtrField<std::string>& texts) {
  const auto list = nlohmann::json::parse(value, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return BadFlag(flag, expected, value);
  for (const auto& entry : list) {
    const auto* text = entry.get_ptr<const std::string*>();
    if (text == nullptr) return BadFlag(flag, expected, value);
    texts.Add(std::string(*text));
  }
  return absl::OkStatus();
}

// The flag holds one text, or a JSON list of texts.
absl::Status SetStopStrings(const std::string& flag, foretoken::v1::StoppingOptions& stopping) {
  if (flag.empty()) return absl::OkStatus();
  if (flag.front() == '[') {
    return AddTexts("stop", flag, "a JSON list of texts (a text that begins with [ must stand in such a list)",
                    *stopping.mutable_stop_strings());
  }
  stopping.add_stop_strings(flag);
  return absl::OkStatus();
}

// The flags whose texts are on standard input, in the order in which they are read.
std::vector<std::string> FlagsOnStandardInput() {
  std::vector<std::string> flags;
  if (absl::GetFlag(FLAGS_json_schema) == "@-") flags.push_back("--json_schema");
  if (absl::GetFlag(FLAGS_ebnf) == "@-") flags.push_back("--ebnf");
  if (absl::GetFlag(FLAGS_structural_tag) == "@-") flags.push_back("--structural_tag");
  if (absl::GetFlag(FLAGS_prediction_file) == "-") flags.push_back("--prediction_file");
  return flags;
}

absl::Status CheckStandardInput(std::optional<std::string> holds) {
  for (std::string& flag : FlagsOnStandardInput()) {
    if (holds.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": expected a file, got standard input, which is read for ", *holds));
    }
    holds = std::move(flag);
  }
  return absl::OkStatus();
}

// The value of a flag that takes a text or, as @FILE, a file.
absl::StatusOr<std::string> TextOrFile(absl::string_view flag, const std::string& value) {
  if (value.empty() || value.front() != '@') return value;
  return ReadText(absl::StrCat("--", flag), value.substr(1));
}

absl::Status SetResponseFormat(GenerateRequest& request) {
  const std::string schema = absl::GetFlag(FLAGS_json_schema), regex = absl::GetFlag(FLAGS_regex),
                    ebnf = absl::GetFlag(FLAGS_ebnf), choices = absl::GetFlag(FLAGS_choices),
                    tag = absl::GetFlag(FLAGS_structural_tag);
  const bool any_json = absl::GetFlag(FLAGS_any_json);
  const int num_given = !schema.empty() + !regex.empty() + !ebnf.empty() + !choices.empty() + !tag.empty() + any_json;
  if (num_given == 0) return absl::OkStatus();
  if (num_given > 1) {
    return absl::InvalidArgumentError(
        "expected one form of the output, got several of --json_schema, --any_json, --regex, --ebnf, --choices and "
        "--structural_tag");
  }
  foretoken::v1::ResponseFormat& format = *request.mutable_response_format();
  if (any_json) format.set_any_json(true);
  if (!regex.empty()) format.set_regex(regex);
  if (!schema.empty()) {
    FT_ASSIGN_OR_RETURN(*format.mutable_json_schema(), TextOrFile("json_schema", schema));
  }
  if (!ebnf.empty()) {
    FT_ASSIGN_OR_RETURN(*format.mutable_ebnf(), TextOrFile("ebnf", ebnf));
  }
  if (!tag.empty()) {
    FT_ASSIGN_OR_RETURN(*format.mutable_structural_tag(), TextOrFile("structural_tag", tag));
  }
  if (choices.empty()) return absl::OkStatus();
  return AddTexts("choices", choices, "a JSON list of texts", *format.mutable_choices()->mutable_texts());
}

absl::Status SetStopping(foretoken::v1::StoppingOptions& stopping) {
  if (auto value = absl::GetFlag(FLAGS_max_tokens)) stopping.set_max_tokens(*value);
  if (auto value = absl::GetFlag(FLAGS_min_tokens)) stopping.set_min_tokens(*value);
  if (auto value = absl::GetFlag(FLAGS_ignore_eos)) stopping.set_ignore_eos(*value);
  if (auto value = absl::GetFlag(FLAGS_include_stop_string)) stopping.set_include_stop_string(*value);
  FT_RETURN_IF_ERROR(
      AddTokenIds("stop_token_ids", absl::GetFlag(FLAGS_stop_token_ids), *stopping.mutable_stop_token_ids()));
  return SetStopStrings(absl::GetFlag(FLAGS_stop), stopping);
}

void SetOutput(foretoken::v1::OutputOptions& output) {
  if (auto value = absl::GetFlag(FLAGS_logprobs)) output.set_logprobs(*value);
  if (auto value = absl::GetFlag(FLAGS_prompt_logprobs)) output.set_prompt_logprobs(*value);
  if (auto value = absl::GetFlag(FLAGS_echo)) output.set_echo(*value);
  if (auto value = absl::GetFlag(FLAGS_skip_special_tokens)) output.set_skip_special_tokens(*value);
}

absl::Status SetPrediction(foretoken::v1::SpeculationOptions& speculation) {
  const std::string text = absl::GetFlag(FLAGS_prediction);
  const std::string path = absl::GetFlag(FLAGS_prediction_file);
  if (!text.empty() && !path.empty()) {
    return absl::InvalidArgumentError("expected one prediction, got both --prediction and --prediction_file");
  }
  if (!text.empty()) speculation.set_prediction_text(text);
  if (path.empty()) return absl::OkStatus();
  FT_ASSIGN_OR_RETURN(*speculation.mutable_prediction_text(), ReadText("--prediction_file", path));
  return absl::OkStatus();
}

absl::Status SetSpeculation(GenerateRequest& request) {
  foretoken::v1::SpeculationOptions& speculation = *request.mutable_speculation();
  if (const std::string mode = absl::GetFlag(FLAGS_speculation); mode == "auto") {
    speculation.set_mode(foretoken::v1::SPECULATION_MODE_AUTO);
  } else if (mode == "off") {
    speculation.set_mode(foretoken::v1::SPECULATION_MODE_OFF);
  } else if (mode == "always") {
    speculation.set_mode(foretoken::v1::SPECULATION_MODE_ALWAYS);
  } else if (!mode.empty()) {
    return BadFlag("speculation", "auto, off or always", mode);
  }
  for (const std::string& name : absl::GetFlag(FLAGS_proposers)) speculation.add_proposers(name);
  if (auto value = absl::GetFlag(FLAGS_max_tree_nodes)) speculation.set_max_tree_nodes(*value);
  FT_RETURN_IF_ERROR(SetPrediction(speculation));
  if (const std::string rule = absl::GetFlag(FLAGS_verification); rule == "keyed_draw") {
    request.set_verification(foretoken::v1::VERIFICATION_RULE_KEYED_DRAW);
  } else if (rule == "rejection_sampling") {
    request.set_verification(foretoken::v1::VERIFICATION_RULE_REJECTION_SAMPLING);
  } else if (!rule.empty()) {
    return BadFlag("verification", "keyed_draw or rejection_sampling", rule);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerateRequest> RequestFromFlags(std::optional<std::string> input_holds) {
  FT_RETURN_IF_ERROR(CheckStandardInput(std::move(input_holds)));
  GenerateRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_tenant(absl::GetFlag(FLAGS_tenant));
  request.set_priority(absl::GetFlag(FLAGS_priority));
  if (auto value = absl::GetFlag(FLAGS_add_special_tokens)) request.set_add_special_tokens(*value);
  if (auto value = absl::GetFlag(FLAGS_parse_special_tokens)) request.set_parse_special_tokens(*value);
  if (auto value = absl::GetFlag(FLAGS_truncate_prompt_tokens)) request.set_truncate_prompt_tokens(*value);
  FT_RETURN_IF_ERROR(SetSampling(*request.mutable_sampling()));
  FT_RETURN_IF_ERROR(SetStopping(*request.mutable_stopping()));
  SetOutput(*request.mutable_output());
  FT_RETURN_IF_ERROR(SetResponseFormat(request));
  FT_RETURN_IF_ERROR(SetSpeculation(request));
  request.set_expected_numerics_fingerprint(absl::GetFlag(FLAGS_numerics_fingerprint));
  return request;
}

std::optional<std::string> RequestFlagOnStandardInput() {
  std::vector<std::string> flags = FlagsOnStandardInput();
  if (flags.empty()) return std::nullopt;
  return std::move(flags.front());
}

}  // namespace foretoken::client
