// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/request_translation.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "verifier_service/api/request_bounds.h"

namespace foretoken::verifier {
namespace {

constexpr int32_t kAnySeed = -1;                                       // as none in vLLM
constexpr uint32_t kAllTokens = std::numeric_limits<uint32_t>::max();  // top_k: -1 in vLLM
constexpr int32_t kTruncateToContext = -1;
// More elements than this of a list that is refused anyway need not be read.
constexpr size_t kMaxRefusedElements = 64;
constexpr size_t kMaxIncludes = 64;
constexpr size_t kMaxAborts = 16'384;

template <typename... Parts>
absl::Status Invalid(absl::string_view field, const Parts&... why) {
  return rpc::InvalidField(field, absl::StrCat(why...));
}

rpc::MessageBounds GenerateBounds(const ServedModel& model) {
  const auto vocabulary_size = static_cast<size_t>(model.vocabulary_size);
  const size_t max_prompt = model.max_prompt_bytes;
  return {*engine_api::GenerateRequest::descriptor(),
          {{.path = "request_id", .max_bytes = kMaxNameBytes},
           {.path = "tokenized.original_text", .max_bytes = max_prompt},
           {.path = "tokenized.input_ids", .max_count = max_prompt},
           {.path = "text", .max_bytes = max_prompt},
           {.path = "sampling_params.stop", .max_count = kMaxStopStrings, .max_bytes = kMaxStopStringBytes},
           {.path = "sampling_params.stop_token_ids", .max_count = vocabulary_size},
           {.path = "sampling_params.json_schema", .max_bytes = kMaxJsonBytes},
           {.path = "sampling_params.regex", .max_bytes = kMaxJsonBytes},
           {.path = "sampling_params.grammar", .max_bytes = kMaxJsonBytes},
           {.path = "sampling_params.structural_tag", .max_bytes = kMaxJsonBytes},
           {.path = "sampling_params.choice.choices", .max_count = kMaxChoices, .max_bytes = kMaxChoiceBytes},
           {.path = "sampling_params.logit_bias", .max_count = vocabulary_size},
           {.path = "kv_transfer_params", .max_bytes = max_prompt},
           {.path = "mm_inputs", .max_bytes = max_prompt},
           {.path = "kv_transfer_params_json", .max_bytes = max_prompt},
           {.path = "media_refs", .max_bytes = max_prompt},
           {.path = "extra_mm_inputs", .max_count = kMaxRefusedElements, .max_bytes = max_prompt}}};
}

// Refuses what the contract has and this server does not. Ignoring it would give another output than the client means.
absl::Status CheckOffered(const engine_api::GenerateRequest& request) {
  constexpr absl::string_view kTextAlone = "expected none, because this server reads text alone";
  constexpr absl::string_view kOwnPrompts = "expected none, because this server computes prompts itself";
  if (request.has_mm_inputs()) return Invalid("mm_inputs", kTextAlone);
  if (request.extra_mm_inputs_size() > 0) return Invalid("extra_mm_inputs", kTextAlone);
  if (request.has_media_refs()) return Invalid("media_refs", kTextAlone);
  if (request.has_kv_transfer_params()) return Invalid("kv_transfer_params", kOwnPrompts);
  if (request.has_kv_transfer_params_json()) return Invalid("kv_transfer_params_json", kOwnPrompts);
  if (request.data_parallel_rank() != 0) {
    return Invalid("data_parallel_rank", "expected 0, because this server has one engine, got ",
                   request.data_parallel_rank());
  }
  return absl::OkStatus();
}

absl::Status TranslatePrompt(engine_api::GenerateRequest& from, v1::GenerateRequest& to) {
  switch (from.input_case()) {
    case engine_api::GenerateRequest::kTokenized:
      to.mutable_tokens()->mutable_ids()->Swap(from.mutable_tokenized()->mutable_input_ids());
      return absl::OkStatus();
    case engine_api::GenerateRequest::kText:
      to.set_text(std::move(*from.mutable_text()));
      to.set_parse_special_tokens(true);
      return absl::OkStatus();
    case engine_api::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return Invalid("input", "expected tokenized or text, got none");
}

absl::Status TranslateTruncation(const engine_api::SamplingParams& from, const ServedModel& model,
                                 v1::GenerateRequest& to) {
  if (!from.has_truncate_prompt_tokens()) return absl::OkStatus();
  const int32_t keep = from.truncate_prompt_tokens();
  if (keep < 1 && keep != kTruncateToContext) {
    return Invalid("sampling_params.truncate_prompt_tokens", "expected at least 1, or -1, got ", keep);
  }
  const int32_t room = model.max_context_tokens - 1;  // beside one generated token
  to.set_truncate_prompt_tokens(static_cast<uint32_t>(keep == kTruncateToContext ? room : keep));
  return absl::OkStatus();
}

// Sets every field that has a default of the model, so that the contract's own defaults hold.
absl::Status TranslateSampling(const engine_api::SamplingParams& from, v1::SamplingOptions& to) {
  to.set_temperature(from.has_temperature() ? from.temperature() : 1);
  to.set_top_p(from.top_p() == 0 ? 1 : from.top_p());
  to.set_top_k(from.top_k() == kAllTokens ? 0 : from.top_k());
  to.set_min_p(from.min_p());
  to.set_frequency_penalty(from.frequency_penalty());
  to.set_presence_penalty(from.presence_penalty());
  to.set_repetition_penalty(from.repetition_penalty() == 0 ? 1 : from.repetition_penalty());
  if (from.n() > 0) to.set_n(from.n());
  if (from.has_seed() && from.seed() != kAnySeed) to.set_seed(static_cast<uint64_t>(int64_t{from.seed()}));
  for (const auto& [id, bias] : from.logit_bias()) {
    if (id < 0) {
      return Invalid(absl::StrCat("sampling_params.logit_bias[", id, "]"), "expected the id of a token, got ", id);
    }
    (*to.mutable_logit_bias())[static_cast<uint32_t>(id)] = bias;
  }
  return absl::OkStatus();
}

void TranslateStopping(engine_api::SamplingParams& from, v1::StoppingOptions& to) {
  if (from.has_max_tokens()) to.set_max_tokens(from.max_tokens());
  to.set_min_tokens(from.min_tokens());
  to.mutable_stop_strings()->Swap(from.mutable_stop());
  to.mutable_stop_token_ids()->Swap(from.mutable_stop_token_ids());
  to.set_ignore_eos(from.ignore_eos());
  to.set_include_stop_string(from.include_stop_str_in_output());
}

absl::Status TranslateOutput(const engine_api::SamplingParams& from, v1::OutputOptions& to) {
  to.set_skip_special_tokens(from.skip_special_tokens());
  if (from.logprobs() < 0) {
    return Invalid("sampling_params.logprobs", "expected a number of tokens, got ", from.logprobs());
  }
  if (from.prompt_logprobs() < 0) {
    return Invalid("sampling_params.prompt_logprobs", "expected a number of tokens, got ", from.prompt_logprobs());
  }
  if (from.has_logprobs()) to.set_logprobs(static_cast<uint32_t>(from.logprobs()));
  if (from.has_prompt_logprobs()) to.set_prompt_logprobs(static_cast<uint32_t>(from.prompt_logprobs()));
  return absl::OkStatus();
}

// vLLM takes two forms of structural tags: XGrammar's, and an older one whose structures are tags with a schema each.
// Returns XGrammar's. A text of neither form stays as it is, because the check of ours says what is wrong with it.
std::string NewTag(std::string tag) {
  using Json = nlohmann::ordered_json;  // properties come in the schema's order
  const absl::StatusOr<Json> old = base::ParseOrderedJson(tag, "structural_tag", kMaxJsonNames);
  if (!old.ok() || !old->is_object() || old->contains("format")) return tag;
  if (!old->contains("structures") || !(*old)["structures"].is_array() || !old->contains("triggers")) return tag;
  Json tags = Json::array();
  for (const Json& structure : (*old)["structures"]) {
    if (!structure.is_object()) return tag;
    for (const char* field : {"begin", "schema", "end"}) {
      if (!structure.contains(field)) return tag;
    }
    tags.push_back({{"begin", structure["begin"]},
                    {"content", {{"type", "json_schema"}, {"json_schema", structure["schema"]}}},
                    {"end", structure["end"]}});
  }
  return Json{{"type", "structural_tag"},
              {"format", {{"type", "triggered_tags"}, {"triggers", (*old)["triggers"]}, {"tags", std::move(tags)}}}}
      .dump();
}

void TranslateConstraint(engine_api::SamplingParams& from, v1::GenerateRequest& to) {
  switch (from.constraint_case()) {
    case engine_api::SamplingParams::kJsonSchema:
      return to.mutable_response_format()->set_json_schema(std::move(*from.mutable_json_schema()));
    case engine_api::SamplingParams::kRegex:
      return to.mutable_response_format()->set_regex(std::move(*from.mutable_regex()));
    case engine_api::SamplingParams::kGrammar:
      return to.mutable_response_format()->set_ebnf(std::move(*from.mutable_grammar()));
    case engine_api::SamplingParams::kStructuralTag:
      return to.mutable_response_format()->set_structural_tag(NewTag(std::move(*from.mutable_structural_tag())));
    case engine_api::SamplingParams::kJsonObject:
      if (from.json_object()) to.mutable_response_format()->set_json_schema(R"({"type":"object"})");
      return;
    case engine_api::SamplingParams::kChoice:
      return to.mutable_response_format()->mutable_choices()->mutable_texts()->Swap(
          from.mutable_choice()->mutable_choices());
    case engine_api::SamplingParams::CONSTRAINT_NOT_SET:
      return;
  }
}

}  // namespace

EngineApiBounds::EngineApiBounds(const ServedModel& model)
    : generate(GenerateBounds(model)),
      abort(*engine_api::AbortRequest::descriptor(),
            {{.path = "request_ids", .max_count = kMaxAborts, .max_bytes = kMaxNameBytes}}),
      health_check(*engine_api::HealthCheckRequest::descriptor(), {}),
      get_model_info(*engine_api::GetModelInfoRequest::descriptor(), {}),
      get_server_info(*engine_api::GetServerInfoRequest::descriptor(), {}),
      get_loads(*engine_api::GetLoadsRequest::descriptor(),
                {{.path = "include", .max_count = kMaxIncludes, .max_bytes = kMaxNameBytes}}),
      get_tokenizer(*engine_api::GetTokenizerRequest::descriptor(), {}) {}

absl::StatusOr<v1::GenerateRequest> ToOurs(engine_api::GenerateRequest request, const ServedModel& model) {
  v1::GenerateRequest ours;
  FT_RETURN_IF_ERROR(CheckOffered(request));
  ours.set_request_id(std::move(*request.mutable_request_id()));
  FT_RETURN_IF_ERROR(TranslatePrompt(request, ours));
  engine_api::SamplingParams& params = *request.mutable_sampling_params();
  FT_RETURN_IF_ERROR(TranslateTruncation(params, model, ours));
  FT_RETURN_IF_ERROR(TranslateSampling(params, *ours.mutable_sampling()));
  TranslateStopping(params, *ours.mutable_stopping());
  FT_RETURN_IF_ERROR(TranslateOutput(params, *ours.mutable_output()));
  TranslateConstraint(params, ours);
  return ours;
}

absl::Status InTheirWords(const absl::Status& error) {
  // The beginnings of our fields' names, a longer one before a shorter one.
  constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
      {"tokens.ids", "tokenized.input_ids"},
      {"truncate_prompt_tokens", "sampling_params.truncate_prompt_tokens"},
      {"stopping.stop_strings", "sampling_params.stop"},
      {"stopping.include_stop_string", "sampling_params.include_stop_str_in_output"},
      {"stopping.", "sampling_params."},
      {"sampling.", "sampling_params."},
      {"sampling", "sampling_params"},
      {"output.", "sampling_params."},
      {"response_format.ebnf", "sampling_params.grammar"},
      {"response_format.choices.texts", "sampling_params.choice.choices"},
      {"response_format.choices", "sampling_params.choice"},
      {"response_format.", "sampling_params."},
      {"response_format", "sampling_params.constraint"},
  };
  const std::string field = base::FieldOf(error);
  const std::string message(error.message());
  const std::string prefix = absl::StrCat(field, ": ");
  if (field.empty() || !absl::StartsWith(message, prefix)) return error;
  for (const auto& [ours, theirs] : kNames) {
    if (!absl::StartsWith(field, ours)) continue;
    absl::Status translated = base::WithReason(
        rpc::InvalidField(absl::StrCat(theirs, field.substr(ours.size())),
                          absl::StrReplaceAll(message.substr(prefix.size()),
                                              {{"stopping.max_tokens", "sampling_params.max_tokens"}})),
        base::ReasonOf(error));
    return base::IsConfidential(error) ? base::Confidential(std::move(translated)) : translated;
  }
  return error;
}

}  // namespace foretoken::verifier
