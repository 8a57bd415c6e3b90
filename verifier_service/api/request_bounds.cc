// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/request_bounds.h"

#include <algorithm>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMaxFingerprintBytes = 1024;
constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopStringBytes = 256;
constexpr size_t kMaxProposers = 32;  // the prediction and the grammar count
constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxJsonBytes = size_t{1} << 20;  // of the JSON in a message, and of a response format
constexpr size_t kMaxVariableBytes = size_t{64} << 10;
constexpr size_t kMaxChoices = 4096;
constexpr size_t kMaxChoiceBytes = size_t{64} << 10;

rpc::MessageBounds GenerateBounds(const ServedModel& model) {
  const auto vocabulary_size = static_cast<size_t>(model.vocabulary_size);
  // A prompt that is tokenized has at most as many tokens as a text has bytes.
  const size_t max_prompt = model.max_prompt_bytes;
  return {*v1::GenerateRequest::descriptor(),
          {{.path = "request_id", .max_bytes = kMaxNameBytes},
           {.path = "model", .max_bytes = kMaxNameBytes},
           {.path = "tenant", .max_bytes = kMaxNameBytes},
           {.path = "text", .max_bytes = max_prompt},
           {.path = "tokens.ids", .max_count = max_prompt},
           {.path = "chat.messages", .max_count = kMaxMessages},
           {.path = "chat.messages.role", .max_bytes = kMaxNameBytes},
           {.path = "chat.messages.content", .max_bytes = max_prompt},
           {.path = "chat.messages.fields_json", .max_bytes = kMaxJsonBytes},
           {.path = "chat.tools_json", .max_bytes = kMaxJsonBytes},
           {.path = "chat.template_variables_json", .max_bytes = kMaxVariableBytes},
           {.path = "response_format.json_schema", .max_bytes = kMaxJsonBytes},
           {.path = "response_format.regex", .max_bytes = kMaxJsonBytes},
           {.path = "response_format.ebnf", .max_bytes = kMaxJsonBytes},
           {.path = "response_format.choices.texts", .max_count = kMaxChoices, .max_bytes = kMaxChoiceBytes},
           {.path = "response_format.structural_tag", .max_bytes = kMaxJsonBytes},
           {.path = "sampling.logit_bias", .max_count = vocabulary_size},
           {.path = "sampling.allowed_token_ids", .max_count = vocabulary_size},
           {.path = "sampling.banned_token_ids", .max_count = vocabulary_size},
           {.path = "stopping.stop_strings", .max_count = kMaxStopStrings, .max_bytes = kMaxStopStringBytes},
           {.path = "stopping.stop_token_ids", .max_count = vocabulary_size},
           {.path = "speculation.proposers", .max_count = kMaxProposers, .max_bytes = kMaxNameBytes},
           {.path = "speculation.prediction_text", .max_bytes = max_prompt},
           {.path = "speculation.prediction_tokens.ids", .max_count = max_prompt},
           {.path = "expected_numerics_fingerprint", .max_bytes = kMaxFingerprintBytes}}};
}

}  // namespace

RequestBounds::RequestBounds(const ServedModel& model)
    : generate(GenerateBounds(model)),
      abort(*v1::AbortRequest::descriptor(),
            {{.path = "request_id", .max_bytes = kMaxNameBytes}, {.path = "tenant", .max_bytes = kMaxNameBytes}}),
      tokenize(*v1::TokenizeRequest::descriptor(),
               {{.path = "model", .max_bytes = kMaxNameBytes}, {.path = "text", .max_bytes = model.max_prompt_bytes}}),
      detokenize(*v1::DetokenizeRequest::descriptor(),
                 {{.path = "model", .max_bytes = kMaxNameBytes},
                  {.path = "token_ids",
                   .max_count = static_cast<size_t>(std::max(model.vocabulary_size, model.max_context_tokens))}}),
      get_model_info(*v1::GetModelInfoRequest::descriptor(), {{.path = "model", .max_bytes = kMaxNameBytes}}) {}

}  // namespace foretoken::verifier
