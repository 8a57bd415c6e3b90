// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/proposal_service.h"

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/feature_conversion.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/projection_file.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/status.h"
#include "proposer_service/description.h"
#include "proposer_service/event_checks.h"
#include "proposer_service/make_proposer.h"
#include "proposer_service/proposal_stream.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

grpc::Status Draining() {
  return {grpc::StatusCode::UNAVAILABLE, "the proposer is draining; open the stream elsewhere"};
}

struct UnaryCall {
  const grpc::ByteBuffer* bytes;  // of the request
  grpc::ByteBuffer* response;
  const rpc::MessageBounds* bounds;  // of the request
};

// Answers the call with what the function makes of the request, and returns the call's status.
template <typename Request, typename Function>
grpc::Status Answer(const UnaryCall& call, const Function& make) {
  const auto answer = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    Request request;
    FT_RETURN_IF_ERROR(rpc::ParseMessage(rpc::TakeBytes(*call.bytes), *call.bounds, request));
    FT_ASSIGN_OR_RETURN(const auto made, make(request));
    return rpc::ToBytes(made);
  }();
  if (answer.ok()) *call.response = *answer;
  return rpc::ToGrpc(answer.status());
}

// A call of ReadProjection. Its piece takes up to 1 MiB here until the verifier has taken it, its connection ends, or
// its time is over, so the call keeps its place until then.
class PieceCall final : public grpc::ServerUnaryReactor {
 public:
  PieceCall(grpc::CallbackServerContext& context, base::WorkPlaces::Place place, absl::Duration max_time)
      : place_(std::move(place)), context_(&context) {
    const gpr_timespec wait = gpr_time_from_millis(absl::ToInt64Milliseconds(max_time), GPR_TIMESPAN);
    time_is_over_.Set(wait, [this](bool is_over) {
      if (is_over) Cancel();
      Release();
    });
  }

 private:
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  // The server waits for this, and not for the alarm. So the place, which belongs to the service, is given back here.
  void OnDone() override {
    {
      absl::MutexLock lock(&mutex_);
      context_ = nullptr;
    }
    place_.reset();
    time_is_over_.Cancel();
    Release();
  }
  void Release() {
    if (--num_users_ == 0) delete this;
  }

  base::WorkPlaces::Place place_;
  absl::Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);  // null: the call has ended
  grpc::Alarm time_is_over_;
  std::atomic<int> num_users_ = 2;  // the call and the alarm
};

// Returns the configuration with the proposer's own limits where those are lower.
Config FittedTo(const ProposerDescription& proposer, Config config) {
  int64_t& limit = config.limits.max_context_tokens;
  limit = std::min(limit, proposer.max_context_tokens.value_or(limit));
  return config;
}

std::string ProjectionOf(const ProposerDescription& proposer) {
  if (proposer.features == nullptr || !proposer.features->projection.has_value()) return "";
  return rpc::ProjectionBytes(*proposer.features->projection);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProposalService>> ProposalService::Create(const Config& config,
                                                                         telemetry::Metrics& metrics,
                                                                         TraceOptions trace) {
  FT_RETURN_IF_ERROR(Validate(config));
  FT_ASSIGN_OR_RETURN(std::unique_ptr<Proposer> proposer, MakeProposer(config, metrics));
  return Create(config, std::move(proposer), metrics, std::move(trace));
}

absl::StatusOr<std::unique_ptr<ProposalService>> ProposalService::Create(const Config& config,
                                                                         std::unique_ptr<Proposer> proposer,
                                                                         telemetry::Metrics& metrics,
                                                                         TraceOptions trace) {
  FT_RETURN_IF_ERROR(Validate(config));
  std::unique_ptr<ProposalService> service(new ProposalService(config, std::move(proposer), metrics, std::move(trace)));
  if (const std::string& directory = config.draft.projection_directory;
      !directory.empty() && !service->projection_.empty()) {
    const absl::Status written = rpc::WriteProjection(directory, service->projection_digest_, service->projection_);
    if (!written.ok()) {  // a full disk, for example
      spdlog::warn("projection_directory: {}; verifiers read the projection from this proposer", written.ToString());
    }
  }
  return service;
}

ProposalService::ProposalService(const Config& config, std::unique_ptr<Proposer> proposer, telemetry::Metrics& metrics,
                                 TraceOptions trace)
    : config_(FittedTo(proposer->Describe(), config)),
      request_bounds_(RequestBounds()),
      describe_bounds_(DescribeRequestBounds()),
      projection_bounds_(ProjectionRequestBounds()),
      proposer_(std::move(proposer)),
      projection_(ProjectionOf(proposer_->Describe())),
      projection_digest_(projection_.empty() ? "" : rpc::ProjectionDigest(projection_)),
      metrics_(metrics, {{"proposer", proposer_->Describe().method}}),
      trace_(std::move(trace)),
      room_(config_.limits, metrics_.room()) {}

ProposalService::~ProposalService() = default;

void ProposalService::StopAdmitting() {
  absl::MutexLock lock(&mutex_);
  admitting_ = false;
  // A stream leaves the set in a gRPC callback that takes this lock, so all streams of the set are alive here.
  for (ProposalStream* stream : streams_) stream->End(Draining());
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ProposalService::Propose(
    grpc::CallbackServerContext* context) {
  const grpc::string_ref authority = context->ExperimentalGetAuthority();
  auto* stream = new ProposalStream(
      *this, {.proposer = *proposer_,
              .room = room_,
              .metrics = metrics_,
              .trace = &trace_,
              .call = {.server = std::string(authority.data(), authority.size()), .peer = context->peer()}});
  metrics_.streams.Increment();
  absl::MutexLock lock(&mutex_);
  const auto num_streams = static_cast<int32_t>(streams_.size());
  if (!admitting_) {
    stream->End(Draining());
  } else if (num_streams >= config_.limits.max_streams) {
    stream->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                 absl::StrCat("max_streams: expected at most ", config_.limits.max_streams, ", got one more")});
  } else {
    streams_.insert(stream);
    stream->Start();
  }
  return stream;
}

void ProposalService::Forget(ProposalStream* stream) {
  metrics_.streams.Decrement();
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

grpc::ServerUnaryReactor* ProposalService::DescribeProposer(grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* bytes, grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* const call = context->DefaultReactor();
  call->Finish(Answer<v1::DescribeProposerRequest>({bytes, response, &describe_bounds_},
                                                   [this](const auto& request) { return Describe(request); }));
  return call;
}

absl::StatusOr<v1::DescribeProposerResponse> ProposalService::Describe(
    const v1::DescribeProposerRequest& request) const {
  const ProposerDescription& description = proposer_->Describe();
  const std::span<const uint64_t> digests(request.token_digests().data(), request.token_digests().size());
  FT_RETURN_IF_ERROR(CheckVocabulary(description, request.vocabulary_fingerprint(), digests));
  v1::DescribeProposerResponse response = ToProto(description, config_.limits);
  if (description.features != nullptr) rpc::WriteFeatures(*description.features, projection_digest_, response);
  return response;
}

grpc::ServerUnaryReactor* ProposalService::ReadProjection(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* bytes, grpc::ByteBuffer* response) {
  base::WorkPlaces::Place place = pieces_.Take();
  if (place == nullptr) {
    grpc::ServerUnaryReactor* const refused = context->DefaultReactor();
    refused->Finish(
        {grpc::StatusCode::RESOURCE_EXHAUSTED,
         absl::StrCat("ReadProjection: expected at most ", pieces_.most(), " calls at a time, got one more")});
    return refused;
  }
  auto* const call = new PieceCall(*context, std::move(place), config_.limits.max_piece_time);
  call->Finish(Answer<v1::ReadProjectionRequest>({bytes, response, &projection_bounds_},
                                                 [this](const auto& request) { return ReadPiece(request); }));
  return call;
}

absl::StatusOr<v1::ReadProjectionResponse> ProposalService::ReadPiece(const v1::ReadProjectionRequest& request) const {
  if (projection_digest_.empty() || request.digest() != projection_digest_) {
    return absl::NotFoundError("digest: the proposer has no projection with this digest");
  }
  const size_t offset = std::min<uint64_t>(request.offset(), projection_.size());
  v1::ReadProjectionResponse response;
  response.set_data(projection_.substr(offset, rpc::kMaxProjectionPieceBytes));
  return response;
}

}  // namespace foretoken::proposer
