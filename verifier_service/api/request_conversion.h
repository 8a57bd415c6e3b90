// SPDX-License-Identifier: Apache-2.0
// From a GenerateRequest, which anybody may have sent, to a GenerationRequest, in which every field is checked: the
// place where input becomes one of our structs. Nothing is ignored: what cannot be honoured is refused by name. The
// sizes of fields were checked before the request was parsed (request_bounds.h).
//
// A max_tokens beyond what the context holds after the prompt is cut to that: the output would end there anyway, with
// the same finish reason. Fields that are unset take the model's defaults; an unset seed and request_id are drawn.
//
// Errors: INVALID_ARGUMENT "field.path: why, expected and got", or NOT_FOUND for another model.
// Time: encoding dominates, O(n log n) in the text's bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "foretoken/v1/generation.pb.h"
#include "google/protobuf/repeated_field.h"
#include "verifier_service/api/served_model.h"
#include "verifier_service/engine/request.h"

namespace foretoken::verifier {

// 64 random bits, of a generator whose outputs tell nothing of one another. Called from any thread.
using DrawBits = std::function<uint64_t()>;

// All but the ticket and the trace context, which are not in the message.
absl::StatusOr<GenerationRequest> ConvertRequest(const v1::GenerateRequest& request, const ServedModel& model,
                                                 const DrawBits& draw_bits);

// NOT_FOUND unless `requested` is empty or the model's name.
absl::Status CheckModelName(const std::string& requested, const ServedModel& model);

struct TextToEncode {
  absl::string_view text;
  absl::string_view field;  // for messages
  std::optional<bool> add_special_tokens = std::nullopt;
  bool parse_special_tokens = false;
};
// INVALID_ARGUMENT for a text that the tokenizer refuses.
absl::StatusOr<std::vector<int32_t>> EncodeText(const TextToEncode& args, const ServedModel& model);

using RepeatedIds = google::protobuf::RepeatedField<uint32_t>;
// INVALID_ARGUMENT naming `field` and the index of the first id that is no token.
absl::StatusOr<std::vector<int32_t>> CheckTokenIds(const RepeatedIds& ids, absl::string_view field,
                                                   const ServedModel& model);

}  // namespace foretoken::verifier
