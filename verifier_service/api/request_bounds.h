// SPDX-License-Identifier: Apache-2.0
// How much each field of a client's request may hold, by what the model and the configuration allow. The numbers are
// part of generation.proto.
//
//   const RequestBounds bounds(model);
//   FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, bounds.generate, request));
#pragma once

#include "common/rpc/message_bounds.h"
#include "verifier_service/api/served_model.h"

namespace foretoken::verifier {

struct RequestBounds {
  explicit RequestBounds(const ServedModel& model);

  rpc::MessageBounds generate;
  rpc::MessageBounds abort;
  rpc::MessageBounds tokenize;
  rpc::MessageBounds detokenize;
  rpc::MessageBounds get_model_info;
};

}  // namespace foretoken::verifier
