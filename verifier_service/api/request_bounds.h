// SPDX-License-Identifier: Apache-2.0
// The largest size of each field of a client's request, from the model and the configuration. generation.proto states
// the same numbers.
//
//   const RequestBounds bounds(model);
//   FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, bounds.generate, request));
#pragma once

#include <cstddef>

#include "common/rpc/message_bounds.h"
#include "verifier_service/api/served_model.h"

namespace foretoken::verifier {

// Sizes that hold in every form of a request (call_format.h).
inline constexpr size_t kMaxNameBytes = 256;
// A glance for one number reads so much of a message's options.
inline constexpr size_t kMaxPeekedOptionBytes = size_t{16} << 10;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;  // of the JSON in a message, and of a response format
inline constexpr int kMaxJsonNames = 1024;                // of an object in the JSON that keeps its order
inline constexpr size_t kMaxJsonValues = 262'144;         // of a conversation's JSON
inline constexpr size_t kMaxChoices = 4096;
inline constexpr size_t kMaxChoiceBytes = size_t{64} << 10;

struct RequestBounds {
  explicit RequestBounds(const ServedModel& model);

  rpc::MessageBounds generate;
  rpc::MessageBounds abort;
  rpc::MessageBounds tokenize;
  rpc::MessageBounds detokenize;
  rpc::MessageBounds get_model_info;
};

}  // namespace foretoken::verifier
