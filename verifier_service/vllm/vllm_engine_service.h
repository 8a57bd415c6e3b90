// SPDX-License-Identifier: Apache-2.0
// The service of vLLM's contract (proto/vllm/engine.proto), beside our own and on the same port. Gateways that know
// vLLM call it. A Generate call is translated as request_translation.h and answer_translation.h say, and otherwise runs
// as every Generate call does: one queue, one set of request ids, the same limits, errors, tokens, traces and metrics.
//
//   VllmEngineService service({.calls = &calls, .stats = ..., .tokenizer = MakeTokenizerArchive(directory), ...});
//   builder.RegisterService(&service);
//
// Errors: as GenerationService. Threads: any.
// Lifetime: the gRPC server shuts down before the service is destroyed. The calls outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "verifier_service/api/generate_calls.h"
#include "verifier_service/vllm/load_reporter.h"
#include "verifier_service/vllm/request_translation.h"
#include "verifier_service/vllm/tokenizer_archive.h"
#include "vllm/engine.grpc.pb.h"

namespace foretoken::verifier {

// Every method takes and returns bytes.
template <typename S>
using RawVllmEngine = engine_api::VllmEngine::WithRawCallbackMethod_Generate<
    engine_api::VllmEngine::WithRawCallbackMethod_Abort<engine_api::VllmEngine::WithRawCallbackMethod_HealthCheck<
        engine_api::VllmEngine::WithRawCallbackMethod_GetModelInfo<
            engine_api::VllmEngine::WithRawCallbackMethod_GetServerInfo<
                engine_api::VllmEngine::WithRawCallbackMethod_GetLoads<
                    engine_api::VllmEngine::WithRawCallbackMethod_GetTokenizer<S>>>>>>>;

struct VllmEngineServiceParts {
  GenerateCalls* calls = nullptr;
  std::string model_type;    // as in config.json: "llama"
  int32_t bos_token_id = 0;  // 0: none
  std::function<EngineStats()> stats;
  std::function<bool()> is_healthy;
  int32_t max_running_samples = 0;
  absl::StatusOr<TokenizerArchive> tokenizer;  // an error is the answer of GetTokenizer
};

class VllmEngineService : public RawVllmEngine<engine_api::VllmEngine::Service> {
 public:
  explicit VllmEngineService(VllmEngineServiceParts parts);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoads(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GetTokenizer(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request) override;

 private:
  absl::StatusOr<engine_api::AbortResponse> Abort(const engine_api::AbortRequest& request, const std::string& tenant);
  engine_api::GetModelInfoResponse DescribeModel() const;
  engine_api::GetServerInfoResponse DescribeServer() const;
  engine_api::GetLoadsResponse DescribeLoads(const engine_api::GetLoadsRequest& request);

  GenerateCalls& calls_;
  const std::shared_ptr<const EngineApiBounds> bounds_;
  const VllmEngineServiceParts parts_;
  const absl::Time started_at_;
  std::atomic<double> last_receive_timestamp_{0};  // seconds since 1970
  LoadReporter loads_;
};

}  // namespace foretoken::verifier
