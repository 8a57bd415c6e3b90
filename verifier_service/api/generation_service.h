// SPDX-License-Identifier: Apache-2.0
<<<<<<< HEAD
// The GenerationService of the protocol. Messages arrive as bytes, so that the error for an unreadable message can name
// the field. Encoding takes time and runs on separate threads: two for Generate, after the call has a place in the
// engine's queue, one for lookups (Tokenize and Detokenize), and one that compiles response formats. Lookups have
// places of their own, so that a Generate never waits for them. A call that is cancelled before its turn frees its
// place at once.
=======
// The GenerationService of the protocol. Generate calls run as generate_calls.h says. Encoding for lookups (Tokenize
// and Detokenize) runs on one thread of its own. Lookups have places of their own, so that a Generate never waits for
// them.
>>>>>>> a50432288c8462020078de8d3abf42d9a4119c54
//
//   GenerateCalls calls({...});
//   GenerationService service({.calls = &calls, .proposers = ...});
//   builder.RegisterService(&service);
//
// Errors: as generation.proto says. Threads: any.
// Lifetime: the gRPC server shuts down before the service is destroyed. The calls outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "verifier_service/api/generate_calls.h"
#include "verifier_service/api/unary_answer.h"
#include "verifier_service/api/work_queue.h"

namespace foretoken::verifier {

// Every method takes and returns bytes.
template <typename S>
using RawGenerationService =
    v1::GenerationService::WithRawCallbackMethod_Generate<v1::GenerationService::WithRawCallbackMethod_Abort<
        v1::GenerationService::WithRawCallbackMethod_Tokenize<v1::GenerationService::WithRawCallbackMethod_Detokenize<
            v1::GenerationService::WithRawCallbackMethod_GetModelInfo<S>>>>>;

struct GenerationServiceParts {
<<<<<<< HEAD
  ServedModel model;
  EnginePort engine;
  Publisher* publisher = nullptr;
  CallMetrics* metrics = nullptr;
  DrawBits draw_bits;              // for unset seeds and request ids
  ClientTokens* tokens = nullptr;  // null: clients need no token
  tracing::Tracer tracer = {};
  bool traces_steps = false;  // a recorded call's trace has every step
  GrammarCompiler* grammars = nullptr;
  int32_t max_compilations = 16;  // of response formats, waiting and running; one more gets RESOURCE_EXHAUSTED
  int32_t max_lookups = 16;       // the same of lookups
=======
  GenerateCalls* calls = nullptr;
  int32_t max_lookups = 16;  // waiting and running; one more gets RESOURCE_EXHAUSTED
>>>>>>> a50432288c8462020078de8d3abf42d9a4119c54
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
<<<<<<< HEAD
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* LookUp(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response, const Method<Request, Response>& method);
  // A place among the lookups or the compilations that wait or run. Its destruction frees it.
  struct LeavePlace {
    void operator()(std::atomic<int32_t>* num_taken) const { num_taken->fetch_sub(1); }
  };
  using WorkPlace = std::unique_ptr<std::atomic<int32_t>, LeavePlace>;
  absl::StatusOr<WorkPlace> ReserveLookup();
  absl::Status CompileLater(Ticket ticket, absl::AnyInvocable<void()> work);
  // Finishes the call and counts it.
  void FinishUnary(absl::string_view name, const absl::Status& status, grpc::CallbackServerContext* context,
                   grpc::ServerUnaryReactor* reactor);

  std::shared_ptr<GenerateCall> FindCall(Ticket ticket);
  std::vector<std::shared_ptr<GenerateCall>> Calls();
=======
  template <typename Request, typename Handler>
  grpc::ServerUnaryReactor* LookUp(const UnaryCall& call, Handler handle);
  // A place among the lookups that wait or run. Its destruction frees it.
  struct LeaveLookups {
    void operator()(std::atomic<int32_t>* num_lookups) const { num_lookups->fetch_sub(1); }
  };
  using LookupPlace = std::unique_ptr<std::atomic<int32_t>, LeaveLookups>;
  absl::StatusOr<LookupPlace> ReserveLookup();
>>>>>>> a50432288c8462020078de8d3abf42d9a4119c54

  GenerateCalls& calls_;
  const std::function<std::vector<ProposerStatus>()> proposers_;
  const int32_t max_lookups_;
  std::atomic<int32_t> num_lookups_{0};
<<<<<<< HEAD
  const int32_t max_compilations_;
  std::atomic<int32_t> num_compilations_{0};
  CallContext call_context_;
  std::atomic<Ticket> next_ticket_{1};
  absl::Mutex mutex_;
  absl::flat_hash_map<Ticket, std::weak_ptr<GenerateCall>> calls_ ABSL_GUARDED_BY(mutex_);  // until they are done
  // Last, because their threads use the members above.
  WorkQueue work_queue_;
  WorkQueue lookup_queue_;
  WorkQueue compile_queue_;
  PeriodicTask stall_watch_;
=======
  std::atomic<uint64_t> next_lookup_{1};
  WorkQueue lookup_queue_;  // last, because its thread uses the members above
>>>>>>> a50432288c8462020078de8d3abf42d9a4119c54
};

}  // namespace foretoken::verifier
