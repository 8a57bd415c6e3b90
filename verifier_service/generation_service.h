// SPDX-License-Identifier: Apache-2.0
// The GenerationService of the protocol. Messages come as bytes, so that one that does not parse is answered with the
// field's name. What takes time (encoding) runs on two threads of its own, after a place in the engine's queue was
// taken.
//
//   Publisher publisher;
//   GenerationService service({.model = ..., .engine = ..., .publisher = &publisher, ...});
//   builder.RegisterService(&service);
//
// Errors: as generation.proto says. Threads: any.
// Lifetime: the server that it is registered at shuts down first; the publisher and the engine outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "verifier_service/generate_call.h"
#include "verifier_service/work_queue.h"

namespace foretoken::verifier {

// Every method takes and gives bytes.
template <typename S>
using RawGenerationService =
    v1::GenerationService::WithRawCallbackMethod_Generate<v1::GenerationService::WithRawCallbackMethod_Abort<
        v1::GenerationService::WithRawCallbackMethod_Tokenize<v1::GenerationService::WithRawCallbackMethod_Detokenize<
            v1::GenerationService::WithRawCallbackMethod_GetModelInfo<S>>>>>;

struct GenerationServiceParts {
  ServedModel model;
  EnginePort engine;
  Publisher* publisher = nullptr;
  CallMetrics* metrics = nullptr;
  DrawBits draw_bits;  // for unset seeds and request ids; called by one thread at a time
  std::function<std::vector<ProposerStatus>()> proposers;
};

class GenerationService : public RawGenerationService<v1::GenerationService::Service> {
 public:
  explicit GenerationService(GenerationServiceParts parts);

  // Whether all Generate calls have ended before the timeout.
  bool WaitUntilIdle(absl::Duration timeout);
  // Ends every running request with FINISH_REASON_ABORT.
  void AbortAll();
  // Ends every running request that the engine has with an error, without asking the engine.
  void FailAll(const absl::Status& status);

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
  absl::StatusOr<v1::AbortResponse> Abort(const v1::AbortRequest& request);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo(const v1::GetModelInfoRequest& request);

  // Answers now, or, for what may take long, on the work queue with a place in the engine's queue.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response,
                                   absl::StatusOr<Response> (GenerationService::*method)(const Request&));
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* AnswerLater(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response,
                                        absl::StatusOr<Response> (GenerationService::*method)(const Request&));

  const std::function<std::vector<ProposerStatus>()> proposers_;
  absl::Mutex draw_mutex_;
  CallContext call_context_;
  std::atomic<Ticket> next_ticket_{1};
  absl::Mutex mutex_;
  absl::flat_hash_set<Ticket> running_ ABSL_GUARDED_BY(mutex_);
  WorkQueue work_queue_;  // last: its work uses the rest
};

}  // namespace foretoken::verifier
