// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/request_conversion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/speculation/token_tree.h"
#include "verifier_service/api/chat_conversion.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::verifier {
namespace {

constexpr uint32_t kMaxLogprobs = 20;
// Within these ranges the sampling parameters map logits up to 1e30 to finite numbers.
constexpr float kMaxTemperature = 100;
constexpr float kMinRepetitionPenalty = 0.01f;
constexpr float kMaxRepetitionPenalty = 100;
constexpr float kMaxLogitBias = 10'000;

template <typename... Parts>
absl::Status Invalid(absl::string_view field, const Parts&... why) {
  return rpc::InvalidField(field, absl::StrCat(why...));
}

absl::Status CheckNumber(absl::string_view field, float value, bool in_range, absl::string_view expected) {
  if (std::isfinite(value) && in_range) return absl::OkStatus();
  return Invalid(field, "expected ", expected, ", got ", value);
}

absl::Status CheckAtMost(absl::string_view field, uint64_t value, uint64_t most) {
  if (value <= most) return absl::OkStatus();
  return Invalid(field, "expected at most ", most, ", got ", value);
}

// True if the model can read and draw the id: the tokenizer knows it, and the model has a row for it.
bool IsToken(uint32_t id, const ServedModel& model) {
  return id < static_cast<uint32_t>(model.vocabulary_size) &&
         model.tokenizer->vocabulary().Find(static_cast<int32_t>(id)) != nullptr;
}

absl::Status CheckTokenId(absl::string_view field, uint32_t id, const ServedModel& model) {
  if (IsToken(id, model)) return absl::OkStatus();
  return Invalid(field, "expected the id of a token, below ", model.vocabulary_size, ", got ", id);
}

absl::Status CheckFingerprint(const std::string& expected, const ServedModel& model) {
  constexpr absl::string_view kField = "expected_numerics_fingerprint";
  if (expected.empty() || expected == model.numerics_fingerprint) return absl::OkStatus();
  return base::WithReason(
      absl::FailedPreconditionError(absl::StrCat(kField, ": the request expects ", base::Quoted(expected),
                                                 ", this server has \"", model.numerics_fingerprint, "\"")),
      "NUMERICS_DIFFER");
}

absl::Status ConvertNames(const v1::GenerateRequest& request, const DrawBits& draw_bits, GenerationRequest& out) {
  out.request_id = request.request_id();
  if (out.request_id.empty()) out.request_id = absl::StrFormat("%016x%016x", draw_bits(), draw_bits());
  out.tenant = request.tenant();
  out.priority = request.priority();
  if (out.priority < -kMaxPriority || out.priority > kMaxPriority) {
    return Invalid("priority", "expected -", kMaxPriority, " to ", kMaxPriority, ", got ", out.priority);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::GenerateRequest& request, const ServedModel& model) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText: {
      TextToEncode args = {.text = request.text(), .field = "text"};
      if (request.has_add_special_tokens()) args.add_special_tokens = request.add_special_tokens();
      args.parse_special_tokens = request.parse_special_tokens();
      return EncodeText(args, model);
    }
    case v1::GenerateRequest::kTokens:
      return CheckTokenIds(request.tokens().ids(), "tokens.ids", model);
    case v1::GenerateRequest::kChat:
      return ChatTokens(request, model);
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return Invalid("prompt", "expected text, tokens or chat, got none");
  }
  return Invalid("prompt", "expected text or tokens");
}

absl::Status ConvertPrompt(const v1::GenerateRequest& request, const ServedModel& model, GenerationRequest& out) {
  const char* field = request.has_tokens() ? "tokens.ids" : request.has_chat() ? "chat" : "text";
  FT_ASSIGN_OR_RETURN(out.prompt, PromptTokens(request, model));
  out.is_chat = request.has_chat();
  if (out.prompt.empty()) return Invalid(field, "expected a prompt of at least one token, got none");
  if (request.has_truncate_prompt_tokens()) {
    const size_t keep = request.truncate_prompt_tokens();
    if (keep == 0) return Invalid("truncate_prompt_tokens", "expected at least 1, got 0");
    if (out.prompt.size() > keep) out.prompt.erase(out.prompt.begin(), out.prompt.end() - keep);
  }
  const size_t most = model.max_context_tokens - 1;  // leaves room for one generated token
  if (out.prompt.size() > most) {
    return Invalid(field, "expected a prompt of at most ", most, " tokens, which leaves room for one in a context of ",
                   model.max_context_tokens, "; got ", out.prompt.size());
  }
  return absl::OkStatus();
}

absl::Status ConvertSampling(const v1::SamplingOptions& options, const ServedModel& model, const DrawBits& draw_bits,
                             kernels::SamplingParams& out) {
  out = model.default_sampling;
  if (options.has_temperature()) out.temperature = options.temperature();
  FT_RETURN_IF_ERROR(CheckNumber("sampling.temperature", out.temperature,
                                 out.temperature >= 0 && out.temperature <= kMaxTemperature, "0 to 100"));
  if (options.has_top_k()) out.top_k = static_cast<int32_t>(std::min<uint32_t>(options.top_k(), model.vocabulary_size));
  if (options.has_top_p()) out.top_p = options.top_p();
  FT_RETURN_IF_ERROR(CheckNumber("sampling.top_p", out.top_p, out.top_p > 0 && out.top_p <= 1, "above 0, at most 1"));
  if (options.has_min_p()) out.min_p = options.min_p();
  FT_RETURN_IF_ERROR(CheckNumber("sampling.min_p", out.min_p, out.min_p >= 0 && out.min_p <= 1, "0 to 1"));
  if (options.has_repetition_penalty()) out.repetition_penalty = options.repetition_penalty();
  FT_RETURN_IF_ERROR(
      CheckNumber("sampling.repetition_penalty", out.repetition_penalty,
                  out.repetition_penalty >= kMinRepetitionPenalty && out.repetition_penalty <= kMaxRepetitionPenalty,
                  "0.01 to 100"));
  if (options.has_presence_penalty()) out.presence_penalty = options.presence_penalty();
  FT_RETURN_IF_ERROR(
      CheckNumber("sampling.presence_penalty", out.presence_penalty, std::abs(out.presence_penalty) <= 2, "-2 to 2"));
  if (options.has_frequency_penalty()) out.frequency_penalty = options.frequency_penalty();
  FT_RETURN_IF_ERROR(CheckNumber("sampling.frequency_penalty", out.frequency_penalty,
                                 std::abs(out.frequency_penalty) <= 2, "-2 to 2"));
  out.seed = options.has_seed() ? options.seed() : draw_bits();
  return absl::OkStatus();
}

// Returns the ids sorted and without duplicates.
absl::StatusOr<std::vector<int32_t>> TokenSet(const RepeatedIds& ids, absl::string_view field,
                                              const ServedModel& model) {
  FT_ASSIGN_OR_RETURN(std::vector<int32_t> set, CheckTokenIds(ids, field, model));
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return set;
}

absl::Status ConvertSamples(const v1::SamplingOptions& options, const ServedModel& model, GenerationRequest& out) {
  if (options.has_n()) {
    if (options.n() == 0) return Invalid("sampling.n", "expected 1 to ", kMaxSamples, ", got 0");
    FT_RETURN_IF_ERROR(CheckAtMost("sampling.n", options.n(), kMaxSamples));
    out.num_samples = static_cast<int32_t>(options.n());
  }
  for (const auto& [id, bias] : options.logit_bias()) {
    const std::string field = absl::StrCat("sampling.logit_bias[", id, "]");
    FT_RETURN_IF_ERROR(CheckTokenId(field, id, model));
    FT_RETURN_IF_ERROR(CheckNumber(field, bias, std::abs(bias) <= kMaxLogitBias, "-10000 to 10000"));
    out.logit_bias.push_back({.token_id = static_cast<int32_t>(id), .bias = bias});
  }
  std::sort(out.logit_bias.begin(), out.logit_bias.end(),
            [](const auto& a, const auto& b) { return a.token_id < b.token_id; });
  FT_ASSIGN_OR_RETURN(out.allowed_token_ids,
                      TokenSet(options.allowed_token_ids(), "sampling.allowed_token_ids", model));
  FT_ASSIGN_OR_RETURN(out.banned_token_ids, TokenSet(options.banned_token_ids(), "sampling.banned_token_ids", model));
  return absl::OkStatus();
}

absl::Status ConvertLengths(const v1::StoppingOptions& options, int32_t room, StopConditions& out) {
  if (options.has_max_tokens() && options.max_tokens() == 0) {
    return Invalid("stopping.max_tokens", "expected at least 1, got 0");
  }
  if (options.has_max_tokens() && options.min_tokens() > options.max_tokens()) {
    return Invalid("stopping.min_tokens", "expected at most stopping.max_tokens, ", options.max_tokens(), ", got ",
                   options.min_tokens());
  }
  out.max_tokens = room;
  if (options.has_max_tokens()) out.max_tokens = static_cast<int32_t>(std::min<uint32_t>(options.max_tokens(), room));
  // Not cut to the room: before the end of the context nothing else may end the output.
  out.min_tokens = static_cast<int32_t>(std::min<uint32_t>(options.min_tokens(), std::numeric_limits<int32_t>::max()));
  return absl::OkStatus();
}

absl::Status ConvertStopping(const v1::StoppingOptions& options, const ServedModel& model, GenerationRequest& out) {
  const int32_t room = model.max_context_tokens - static_cast<int32_t>(out.prompt.size());
  FT_RETURN_IF_ERROR(ConvertLengths(options, room, out.stop));
  for (const std::string& text : options.stop_strings()) {
    if (text.empty()) {
      return Invalid(absl::StrCat("stopping.stop_strings[", out.stop.stop_strings.size(), "]"),
                     "expected at least one byte, got none");
    }
    out.stop.stop_strings.push_back(text);
  }
  FT_ASSIGN_OR_RETURN(out.stop.stop_token_ids, TokenSet(options.stop_token_ids(), "stopping.stop_token_ids", model));
  out.stop.ignore_eos = options.ignore_eos();
  out.stop.include_stop_string = options.include_stop_string();
  return absl::OkStatus();
}

bool Contains(const std::vector<int32_t>& ascending, int32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

// True if the request can draw a token for which `left_out` is false.
template <typename Predicate>
bool HasToken(const GenerationRequest& request, const ServedModel& model, const Predicate& left_out) {
  const auto is_found = [&](int32_t id) { return !Contains(request.banned_token_ids, id) && !left_out(id); };
  const std::vector<int32_t>& allowed = request.allowed_token_ids;
  if (!allowed.empty()) return std::any_of(allowed.begin(), allowed.end(), is_found);
  const tokenizer::Vocabulary& vocabulary = model.tokenizer->vocabulary();
  for (int32_t id = 0; id < model.vocabulary_size; ++id) {
    if (vocabulary.Find(id) != nullptr && is_found(id)) return true;
  }
  return false;
}

// Refuses lists that together leave no token to draw. Otherwise the request would fail in the middle of its output.
absl::Status CheckSupport(const GenerationRequest& request, const ServedModel& model) {
  if (!HasToken(request, model, [](int32_t) { return false; })) {
    if (request.allowed_token_ids.empty()) {
      return Invalid("sampling.banned_token_ids", "expected to leave a token that can be drawn, got all of them");
    }
    return Invalid("sampling.allowed_token_ids", "expected an id that sampling.banned_token_ids leaves, got none");
  }
  const std::vector<int32_t>& end_ids = model.end_token_ids;
  const auto ends = [&](int32_t id) {
    const bool is_end = std::find(end_ids.begin(), end_ids.end(), id) != end_ids.end();
    return Contains(request.stop.stop_token_ids, id) || (!request.stop.ignore_eos && is_end);
  };
  if (request.stop.min_tokens == 0 || HasToken(request, model, ends)) return absl::OkStatus();
  return Invalid("stopping.min_tokens", "expected 0, because every token that can be drawn ends the output; got ",
                 request.stop.min_tokens);
}

absl::Status ConvertOutput(const v1::OutputOptions& options, OutputRequest& out) {
  FT_RETURN_IF_ERROR(CheckAtMost("output.logprobs", options.logprobs(), kMaxLogprobs));
  FT_RETURN_IF_ERROR(CheckAtMost("output.prompt_logprobs", options.prompt_logprobs(), kMaxLogprobs));
  if (options.has_logprobs()) out.num_logprobs = static_cast<int32_t>(options.logprobs());
  if (options.has_prompt_logprobs()) out.num_prompt_logprobs = static_cast<int32_t>(options.prompt_logprobs());
  out.echo = options.echo();
  if (options.has_skip_special_tokens()) out.skip_special_tokens = options.skip_special_tokens();
  return absl::OkStatus();
}

absl::Status ConvertSpeculation(const v1::SpeculationOptions& options, bool has_format, const ServedModel& model,
                                SpeculationRequest& out) {
  switch (options.mode()) {
    case v1::SPECULATION_MODE_UNSPECIFIED:
    case v1::SPECULATION_MODE_AUTO:
      break;
    case v1::SPECULATION_MODE_OFF:
      out.mode = SpeculationMode::kOff;
      break;
    case v1::SPECULATION_MODE_ALWAYS:
      if (!model.allows_always_speculation) {
        return Invalid("speculation.mode", "expected AUTO or OFF, because this server runs without ",
                       "--allow_always_speculation; got SPECULATION_MODE_ALWAYS");
      }
      out.mode = SpeculationMode::kAlways;
      break;
    default:
      return Invalid("speculation.mode", "expected a SpeculationMode, got ", options.mode());
  }
  for (const std::string& name : options.proposers()) {
    const bool is_own = (name == kPredictionName && options.prediction_case() != options.PREDICTION_NOT_SET) ||
                        (name == kGrammarName && has_format);
    if (!is_own && std::find(model.proposers.begin(), model.proposers.end(), name) == model.proposers.end()) {
      return Invalid(absl::StrCat("speculation.proposers[", out.proposers.size(), "]"), "expected one of {",
                     absl::StrJoin(model.proposers, ", "), "}, got ", base::Quoted(name));
    }
    out.proposers.push_back(name);
  }
  if (options.has_max_tree_nodes()) {
    FT_RETURN_IF_ERROR(CheckAtMost("speculation.max_tree_nodes", options.max_tree_nodes(), speculation::kMaxTreeNodes));
    out.max_tree_nodes = static_cast<int32_t>(options.max_tree_nodes());
  }
  if (options.report_steps() && !model.allows_step_reports) {
    return Invalid("speculation.report_steps", "expected false, because this server runs without ",
                   "--allow_step_reports; got true");
  }
  out.reports_steps = options.report_steps();
  return absl::OkStatus();
}

absl::Status ConvertPrediction(const v1::GenerateRequest& request, const ServedModel& model, Prediction& out) {
  const v1::SpeculationOptions& options = request.speculation();
  std::vector<int32_t> token_ids;
  switch (options.prediction_case()) {
    case v1::SpeculationOptions::PREDICTION_NOT_SET:
      return absl::OkStatus();
    case v1::SpeculationOptions::kPredictionText: {
      FT_ASSIGN_OR_RETURN(token_ids, EncodeText({.text = options.prediction_text(),
                                                 .field = "speculation.prediction_text",
                                                 .add_special_tokens = false,
                                                 .parse_special_tokens = request.parse_special_tokens()},
                                                model));
      break;
    }
    case v1::SpeculationOptions::kPredictionTokens: {
      FT_ASSIGN_OR_RETURN(token_ids,
                          CheckTokenIds(options.prediction_tokens().ids(), "speculation.prediction_tokens.ids", model));
      break;
    }
  }
  out = Prediction(std::move(token_ids), model.max_context_tokens);
  return absl::OkStatus();
}

absl::StatusOr<kernels::VerificationRule> ConvertVerification(v1::VerificationRule rule) {
  switch (rule) {
    case v1::VERIFICATION_RULE_UNSPECIFIED:
    case v1::VERIFICATION_RULE_KEYED_DRAW:
      return kernels::VerificationRule::kKeyedDraw;
    case v1::VERIFICATION_RULE_REJECTION_SAMPLING:
      return kernels::VerificationRule::kRejectionSampling;
    default:
      return Invalid("verification", "expected a VerificationRule, got ", rule);
  }
}

}  // namespace

absl::Status CheckModelName(const std::string& requested, const ServedModel& model) {
  if (requested.empty() || requested == model.name) return absl::OkStatus();
  return base::WithReason(
      absl::NotFoundError(absl::StrCat("model: expected \"", model.name, "\", got ", base::Quoted(requested))),
      "MODEL_NOT_FOUND");
}

absl::StatusOr<std::vector<int32_t>> EncodeText(const TextToEncode& args, const ServedModel& model) {
  absl::StatusOr<std::vector<int32_t>> ids =
      model.tokenizer->Encode(args.text, {.add_special_tokens = args.add_special_tokens,
                                          .parse_special = args.parse_special_tokens,
                                          .special_ranges = args.special_ranges});
  // Every tokenizer error is INVALID_ARGUMENT here: the text causes it, and a retry cannot succeed.
  if (!ids.ok()) return Invalid(args.field, ids.status().message());
  for (const int32_t id : *ids) {
    if (id < model.vocabulary_size) continue;
    return Invalid(args.field, "expected tokens that the model has a row for, ids below ", model.vocabulary_size,
                   "; got \"", model.tokenizer->vocabulary().Find(id)->spelling, "\" with id ", id);
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> CheckTokenIds(const RepeatedIds& ids, absl::string_view field,
                                                   const ServedModel& model) {
  for (int i = 0; i < ids.size(); ++i) {
    if (!IsToken(ids[i], model)) {
      return CheckTokenId(absl::StrCat(field, "[", i, "]"), ids[i], model);
    }
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

absl::StatusOr<GenerationRequest> ConvertRequest(const v1::GenerateRequest& request, const ServedModel& model,
                                                 const DrawBits& draw_bits) {
  GenerationRequest out;
  FT_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  FT_RETURN_IF_ERROR(CheckFingerprint(request.expected_numerics_fingerprint(), model));
  FT_ASSIGN_OR_RETURN(out.verification, ConvertVerification(request.verification()));
  FT_RETURN_IF_ERROR(ConvertNames(request, draw_bits, out));
  FT_RETURN_IF_ERROR(ConvertSampling(request.sampling(), model, draw_bits, out.sampling));
  out.has_clients_seed = request.sampling().has_seed();
  FT_RETURN_IF_ERROR(ConvertSamples(request.sampling(), model, out));
  FT_RETURN_IF_ERROR(ConvertOutput(request.output(), out.output));
  FT_RETURN_IF_ERROR(ConvertSpeculation(request.speculation(), request.has_response_format(), model, out.speculation));
  if (out.verification == kernels::VerificationRule::kRejectionSampling) {
    out.sampling.coin_nonce = draw_bits();  // proposers may know what the seed's coins drew in another request
  }
  out.is_json = request.response_format().has_json_schema() || request.response_format().has_any_json();
  FT_RETURN_IF_ERROR(ConvertPrompt(request, model, out));  // the slowest check comes after the cheap ones
  FT_RETURN_IF_ERROR(ConvertPrediction(request, model, out.speculation.prediction));
  FT_RETURN_IF_ERROR(ConvertStopping(request.stopping(), model, out));
  FT_RETURN_IF_ERROR(CheckSupport(out, model));
  return out;
}

}  // namespace foretoken::verifier
