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

inline constexpr size_t kMaxNameBytes = 256;  // of a tenant, a request id or a model's name

struct RequestBounds {
  explicit RequestBounds(const ServedModel& model);

  rpc::MessageBounds generate;
  rpc::MessageBounds abort;
  rpc::MessageBounds tokenize;
  rpc::MessageBounds detokenize;
  rpc::MessageBounds get_model_info;
};

}  // namespace foretoken::verifier
