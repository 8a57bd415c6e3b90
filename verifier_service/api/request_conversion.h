// SPDX-License-Identifier: Apache-2.0
// Converts an untrusted GenerateRequest to a GenerationRequest with every field checked. No field is ignored: an option
// that the server cannot honour is an error that names the field. The sizes of fields were checked before the request
// was parsed (request_bounds.h).
//
// A max_tokens larger than the rest of the context is cut to the rest of the context. The output would end there
// anyway, with the same finish reason. Unset fields take the model's defaults. An unset seed or request_id is drawn.
//
// Errors: INVALID_ARGUMENT "field.path: why, expected and got", or NOT_FOUND for another model.
// Time: encoding dominates, O(n log n) in the text's bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "foretoken/v1/generation.pb.h"
#include "google/protobuf/repeated_field.h"
#include "verifier_service/api/served_model.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

inline constexpr uint32_t kMaxSamples = 64;  // of a request

// Returns 64 random bits. One output must not help to predict another. Called from any thread.
using DrawBits = std::function<uint64_t()>;

// Fills every field except the ticket and the trace context, which the message does not hold, and the grammar.
absl::StatusOr<GenerationRequest> ConvertRequest(const v1::GenerateRequest& request, const ServedModel& model,
                                                 const DrawBits& draw_bits);

// Returns NOT_FOUND unless `requested` is empty or the model's name.
absl::Status CheckModelName(const std::string& requested, const ServedModel& model);

struct TextToEncode {
  absl::string_view text;
  absl::string_view field;  // for error messages
  std::optional<bool> add_special_tokens = std::nullopt;
  bool parse_special_tokens = false;
  std::span<const tokenizer::TextRange> special_ranges = {};  // as tokenizer::EncodeOptions says
};
// Returns INVALID_ARGUMENT if the tokenizer refuses the text.
absl::StatusOr<std::vector<int32_t>> EncodeText(const TextToEncode& args, const ServedModel& model);

using RepeatedIds = google::protobuf::RepeatedField<uint32_t>;
// Returns INVALID_ARGUMENT with `field` and the index of the first id that is not a token.
absl::StatusOr<std::vector<int32_t>> CheckTokenIds(const RepeatedIds& ids, absl::string_view field,
                                                   const ServedModel& model);

}  // namespace foretoken::verifier
