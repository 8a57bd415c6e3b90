// SPDX-License-Identifier: Apache-2.0
// foretoken.v1.ProposalService over a proposer, with gRPC's callback API. The foretoken_proposer binary serves it. A
// verifier can also serve it inside its own process:
//
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<ProposalService> service, ProposalService::Create(config, metrics));
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Server> server, rpc::Server::Start({}, {service.get()}));
//   std::shared_ptr<grpc::Channel> channel = server->InProcessChannel();
//
// The metrics outlive the service, and the service its server.
// Threads: any.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/work_places.h"
#include "common/rpc/message_bounds.h"
#include "foretoken/v1/proposal.grpc.pb.h"
#include "proposer_service/config.h"
#include "proposer_service/session_table.h"

namespace foretoken::proposer {

class ProposalStream;

// Requests and responses are raw bytes, so that the service checks a request before it parses it.
using RawProposalService =
    v1::ProposalService::WithRawCallbackMethod_Propose<v1::ProposalService::WithRawCallbackMethod_DescribeProposer<
        v1::ProposalService::WithRawCallbackMethod_ReadProjection<v1::ProposalService::Service>>>;

// Calls of ReadProjection at a time, each with a piece of up to 1 MiB. A verifier reads one piece at a time, and a call
// ends a little after its answer, so this is enough for as many verifiers as a proposer has streams by default.
inline constexpr int32_t kMaxPieceCalls = 128;

class ProposalService : public RawProposalService {
 public:
  // Errors: those of Validate and of MakeProposer.
  static absl::StatusOr<std::unique_ptr<ProposalService>> Create(const Config& config, telemetry::Metrics& metrics,
                                                                 TraceOptions trace = {});
  // The same with the caller's own proposer.
  static absl::StatusOr<std::unique_ptr<ProposalService>> Create(const Config& config,
                                                                 std::unique_ptr<Proposer> proposer,
                                                                 telemetry::Metrics& metrics, TraceOptions trace = {});
  ~ProposalService() override;

  // Ends every open stream with UNAVAILABLE after its current write, and every new stream at once.
  void StopAdmitting();

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Propose(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* DescribeProposer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                             grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReadProjection(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                           grpc::ByteBuffer* response) override;

 private:
  friend class ProposalStream;

  ProposalService(const Config& config, std::unique_ptr<Proposer> proposer, telemetry::Metrics& metrics,
                  TraceOptions trace);
  void Forget(ProposalStream* stream);
  absl::StatusOr<v1::DescribeProposerResponse> Describe(const v1::DescribeProposerRequest& request) const;
  absl::StatusOr<v1::ReadProjectionResponse> ReadPiece(const v1::ReadProjectionRequest& request) const;

  const Config config_;
  const rpc::MessageBounds request_bounds_;
  const rpc::MessageBounds describe_bounds_;
  const rpc::MessageBounds projection_bounds_;
  const std::unique_ptr<Proposer> proposer_;
  const std::string projection_;         // the bytes that ReadProjection gives; empty: none
  const std::string projection_digest_;  // of them; empty: none
  ProposerMetrics metrics_;
  const TraceOptions trace_;
  SessionRoom room_;
  base::WorkPlaces pieces_{kMaxPieceCalls};  // that are being sent
  absl::Mutex mutex_;
  bool admitting_ ABSL_GUARDED_BY(mutex_) = true;
  absl::flat_hash_set<ProposalStream*> streams_ ABSL_GUARDED_BY(mutex_);  // at most max_streams
};

}  // namespace foretoken::proposer
