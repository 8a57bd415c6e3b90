// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/proposal_service.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/status.h"
#include "common/tokenizer/vocabulary.h"
#include "proposer_service/make_proposer.h"
#include "proposer_service/proposal_stream.h"

namespace foretoken::proposer {
namespace {

grpc::Status Draining() {
  return {grpc::StatusCode::UNAVAILABLE, "the proposer is draining; open the stream elsewhere"};
}

// A refusal, with the first id that means something else to the verifier where its digests tell.
absl::Status NameDifferingId(const absl::Status& refusal, std::span<const uint64_t> ours,
                             std::span<const uint64_t> theirs) {
  if (refusal.ok() || ours.empty() || theirs.empty()) return refusal;
  const std::optional<int32_t> id = tokenizer::FirstDifferingId(ours, theirs);
  if (!id.has_value()) return refusal;
  return absl::Status(refusal.code(),
                      absl::StrCat(refusal.message(), "; token id ", *id, " is the first that differs"));
}

// The proposer's own limits where they are lower.
Config FittedTo(const ProposerDescription& proposer, Config config) {
  int64_t& limit = config.limits.max_context_tokens;
  limit = std::min(limit, proposer.max_context_tokens.value_or(limit));
  return config;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProposalService>> ProposalService::Create(const Config& config,
                                                                         telemetry::Metrics& metrics) {
  FT_RETURN_IF_ERROR(Validate(config));
  FT_ASSIGN_OR_RETURN(std::unique_ptr<Proposer> proposer, MakeProposer(config, metrics));
  return Create(config, std::move(proposer), metrics);
}

absl::StatusOr<std::unique_ptr<ProposalService>> ProposalService::Create(const Config& config,
                                                                         std::unique_ptr<Proposer> proposer,
                                                                         telemetry::Metrics& metrics) {
  FT_RETURN_IF_ERROR(Validate(config));
  return std::unique_ptr<ProposalService>(new ProposalService(config, std::move(proposer), metrics));
}

ProposalService::ProposalService(const Config& config, std::unique_ptr<Proposer> proposer, telemetry::Metrics& metrics)
    : config_(FittedTo(proposer->Describe(), config)),
      proposer_(std::move(proposer)),
      metrics_(metrics, {{"proposer", proposer_->Describe().method}}),
      slots_(config_.limits.max_sessions, metrics_.sessions) {}

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
  const absl::Status accepted = proposer_->AcceptVocabulary(request->vocabulary_fingerprint());
  const std::span<const uint64_t> digests(request->token_digests().data(), request->token_digests().size());
  reactor->Finish(rpc::ToGrpc(NameDifferingId(accepted, description.token_digests, digests)));
  return reactor;
}

}  // namespace foretoken::proposer
