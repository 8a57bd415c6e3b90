// SPDX-License-Identifier: Apache-2.0
// The GenerationService of the protocol. Generate calls run as generate_calls.h says. Encoding for lookups (Tokenize
// and Detokenize) runs on one thread of its own. Lookups have places of their own, so that a Generate never waits for
// them.
//
//   GenerateCalls calls({...});
//   GenerationService service({.calls = &calls, .proposers = ...});
//   builder.RegisterService(&service);
//
// Errors: as generation.proto says. Threads: any.
// Lifetime: the gRPC server shuts down before the service is destroyed. The calls outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/work_places.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "verifier_service/api/generate_calls.h"
#include "verifier_service/api/tenant_queue.h"
#include "verifier_service/api/unary_answer.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::verifier {

// Every method takes and returns bytes.
template <typename S>
using RawGenerationService =
    v1::GenerationService::WithRawCallbackMethod_Generate<v1::GenerationService::WithRawCallbackMethod_Abort<
        v1::GenerationService::WithRawCallbackMethod_Tokenize<v1::GenerationService::WithRawCallbackMethod_Detokenize<
            v1::GenerationService::WithRawCallbackMethod_GetModelInfo<S>>>>>;

struct GenerationServiceParts {
  GenerateCalls* calls = nullptr;
  int32_t max_lookups = 16;  // waiting and running; one more gets RESOURCE_EXHAUSTED
  std::function<std::vector<ProposerStatus>()> proposers;
};

class GenerationService : public RawGenerationService<v1::GenerationService::Service> {
 public:
  explicit GenerationService(GenerationServiceParts parts);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;

 private:
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo(const v1::GetModelInfoRequest& request);

  // Answers on the lookup thread, because the work may take long.
  template <typename Request, typename Handler>
  grpc::ServerUnaryReactor* LookUp(const UnaryCall& call, Handler handle);

  GenerateCalls& calls_;
  const std::function<std::vector<ProposerStatus>()> proposers_;
  base::WorkPlaces lookups_;  // that wait or run
  TenantQueue lookup_queue_;  // last, because its thread uses the members above
};

}  // namespace foretoken::verifier
