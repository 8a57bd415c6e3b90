// SPDX-License-Identifier: Apache-2.0
// Turns the requests of vLLM's contract (proto/vllm/engine.proto) into requests of our protocol, and the errors about
// the latter back into the former's words. What a request means follows vLLM: a zero in a field without presence is a
// field that the gateway left out, and defaults do not depend on the model.
//
//   FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, bounds.generate, theirs));
//   FT_ASSIGN_OR_RETURN(v1::GenerateRequest ours, ToOurs(std::move(theirs), model));
//
// The translation checks only what our protocol cannot say. ConvertRequest checks the rest.
// Errors: INVALID_ARGUMENT with the field.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/message_bounds.h"
#include "foretoken/v1/generation.pb.h"
#include "verifier_service/api/served_model.h"
#include "vllm/engine.pb.h"

namespace foretoken::verifier {

namespace engine_api = ::vllm::grpc::engine;

// The largest sizes of the fields of requests.
struct EngineApiBounds {
  explicit EngineApiBounds(const ServedModel& model);

  rpc::MessageBounds generate;
  rpc::MessageBounds abort;
  rpc::MessageBounds health_check;
  rpc::MessageBounds get_model_info;
  rpc::MessageBounds get_server_info;
  rpc::MessageBounds get_loads;
  rpc::MessageBounds get_tokenizer;
};

absl::StatusOr<v1::GenerateRequest> ToOurs(engine_api::GenerateRequest request, const ServedModel& model);

// Names the contract's field instead of ours: "sampling.top_p: ..." becomes "sampling_params.top_p: ...".
absl::Status InTheirWords(const absl::Status& error);

}  // namespace foretoken::verifier
