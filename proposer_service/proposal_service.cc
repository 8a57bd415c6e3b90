// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/proposal_service.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/status.h"
#include "proposer_service/ngram.h"
#include "proposer_service/proposal_stream.h"
#include "proposer_service/suffix.h"

namespace foretoken::proposer {
namespace {

grpc::Status Draining() {
  return {grpc::StatusCode::UNAVAILABLE, "the proposer is draining; open the stream elsewhere"};
}

// The config is valid.
std::unique_ptr<Proposer> MakeProposer(const Config& config) {
  if (config.method == "suffix") return std::make_unique<SuffixProposer>(config.suffix);
  return std::make_unique<NgramProposer>(config.ngram);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProposalService>> ProposalService::Create(const Config& config,
                                                                         telemetry::Metrics& metrics) {
  FT_RETURN_IF_ERROR(Validate(config));
  return Create(config, MakeProposer(config), metrics);
}

absl::StatusOr<std::unique_ptr<ProposalService>> ProposalService::Create(const Config& config,
                                                                         std::unique_ptr<Proposer> proposer,
                                                                         telemetry::Metrics& metrics) {
  FT_RETURN_IF_ERROR(Validate(config));
  return std::unique_ptr<ProposalService>(new ProposalService(config, std::move(proposer), metrics));
}

ProposalService::ProposalService(const Config& config, std::unique_ptr<Proposer> proposer, telemetry::Metrics& metrics)
    : config_(config),
      proposer_(std::move(proposer)),
      metrics_(metrics),
      slots_(config.limits.max_sessions, metrics_.sessions) {}

ProposalService::~ProposalService() = default;

void ProposalService::StopAdmitting() {
  absl::MutexLock lock(&mutex_);
  admitting_ = false;
  // A stream leaves the set in a callback of gRPC's, so none is gone before this lock is.
  for (ProposalStream* stream : streams_) stream->End(Draining());
}

grpc::ServerBidiReactor<v1::ProposeRequest, v1::ProposeResponse>* ProposalService::Propose(
    grpc::CallbackServerContext* /*context*/) {
  auto* stream = new ProposalStream(
      *this, {.proposer = *proposer_, .slots = slots_, .metrics = metrics_, .limits = config_.limits});
  metrics_.streams.Increment();
  absl::MutexLock lock(&mutex_);
  streams_.insert(stream);
  if (admitting_) {
    stream->Start();
  } else {
    stream->End(Draining());
  }
  return stream;
}

void ProposalService::Forget(ProposalStream* stream) {
  metrics_.streams.Decrement();
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

grpc::ServerUnaryReactor* ProposalService::DescribeProposer(grpc::CallbackServerContext* context,
                                                            const v1::DescribeProposerRequest* request,
                                                            v1::DescribeProposerResponse* response) {
  const ProposerDescription& description = proposer_->Describe();
  response->set_method(description.method);
  response->set_vocabulary_fingerprint(description.vocabulary_fingerprint);
  response->set_max_sessions(static_cast<uint32_t>(config_.limits.max_sessions));
  response->set_max_context_tokens(static_cast<uint64_t>(config_.limits.max_context_tokens));
  response->set_max_tree_nodes(static_cast<uint32_t>(config_.limits.max_tree_nodes));
  response->set_version(base::Version());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(proposer_->AcceptVocabulary(request->vocabulary_fingerprint())));
  return reactor;
}

}  // namespace foretoken::proposer
