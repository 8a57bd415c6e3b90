// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::proposer {

StreamTrace::StreamTrace(const TraceOptions& options, const std::string& method, tracing::RpcCall call)
    : options_(options) {
  call.method = absl::StrCat(v1::ProposalService::service_full_name(), "/Propose");
  stream_ = options.tracer.Begin({.name = call.method, .kind = tracing::SpanKind::kServer, .begin = clock_.Now()});
  stream_.attributes = tracing::RpcAttributes(call);
  stream_.attributes.push_back({"foretoken.proposer", method});
}

StreamTrace::~StreamTrace() {
  tracing::SetRpcStatus(status_, stream_);
  options_.tracer.End(std::move(stream_), clock_.Now());
}

void StreamTrace::AddRequest(const tracing::TraceContext& request) {
  const auto is_same = [&](const tracing::SpanLink& link) { return link.context == request; };  // of another sample
  if (std::ranges::any_of(stream_.links, is_same) || last_dropped_ == request) return;
  if (stream_.links.size() < kMaxLinks) {
    stream_.links.push_back({.context = request, .is_remote = true});
  } else {
    last_dropped_ = request;
    ++stream_.num_dropped_links;
  }
}

std::optional<tracing::TraceContext> StreamTrace::context() const {
  if (!options_.tracer.IsRecorded(stream_)) return std::nullopt;
  return stream_.context;
}

std::unique_ptr<SessionTrace> SessionTrace::Begin(const TraceOptions& options, const std::string& method,
                                                  const v1::OpenSession& open, StreamTrace& stream) {
  if (open.traceparent().empty()) return nullptr;
  const std::optional<tracing::TraceContext> request = options.tracer.Extract(open.traceparent(), open.tracestate());
  if (!request.has_value()) return nullptr;
  const tracing::SpanClock clock;
  tracing::Span session = options.tracer.Begin(
      {.name = "session", .kind = tracing::SpanKind::kServer, .remote_parent = request, .begin = clock.Now()});
  if (!options.tracer.IsRecorded(session)) return nullptr;
  session.attributes = {{"foretoken.proposer", method},
                        {"foretoken.session.sample_index", static_cast<int64_t>(open.sample_index())}};
  if (const auto context = stream.context()) session.links = {{.context = *context}};
  stream.AddRequest(*request);
  return std::unique_ptr<SessionTrace>(new SessionTrace(options, clock, std::move(session)));
}

SessionTrace::~SessionTrace() {
  const absl::Time now = clock_.Now();
  EndProposal("closed", now);
  session_.attributes.push_back({"foretoken.session.tokens", static_cast<int64_t>(position_)});
  session_.attributes.push_back({"foretoken.session.trees", num_trees_});
  session_.attributes.push_back({"foretoken.session.nodes", num_nodes_});
  options_.tracer.End(std::move(session_), now);
}

tracing::Span SessionTrace::BeginProposal(absl::Time begin) const {
  tracing::Span proposal = options_.tracer.BeginChild(session_, "proposal", begin);
  proposal.kind = tracing::SpanKind::kServer;
  // The verifier makes its own span of the proposal later, so the link can only name the request's span.
  tracing::TraceContext request = session_.context;
  request.span_id = *session_.parent;
  proposal.links = {{.context = request, .is_remote = true}};
  proposal.attributes = {{"foretoken.proposal.position", static_cast<int64_t>(position_)}};
  return proposal;
}

void SessionTrace::EndProposal(absl::string_view outcome, absl::Time end) {
  if (!proposal_.has_value()) return;
  proposal_->attributes.push_back({"foretoken.proposal.outcome", std::string(outcome)});
  options_.tracer.End(*std::exchange(proposal_, std::nullopt), end);
}

void SessionTrace::Ask(int32_t node_budget, bool was_ready) {
  if (!options_.traces_proposals) return;
  const absl::Time now = clock_.Now();
  EndProposal("superseded", now);
  if (node_budget == 0) return;
  proposal_ = BeginProposal(now);
  proposal_->attributes.push_back({"foretoken.proposal.node_budget", int64_t{node_budget}});
  proposal_->attributes.push_back({"foretoken.proposal.was_ready", was_ready});
}

void SessionTrace::Answer(int64_t num_nodes) {
  ++num_trees_;
  num_nodes_ += num_nodes;
  if (!options_.traces_proposals) return;
  const absl::Time now = clock_.Now();
  const bool was_asked = proposal_.has_value();
  if (!was_asked) proposal_ = BeginProposal(now);
  proposal_->attributes.push_back({"foretoken.proposal.nodes", num_nodes});
  EndProposal(was_asked ? "answered" : "pushed", now);
}

}  // namespace foretoken::proposer
