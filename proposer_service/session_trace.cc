// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_trace.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::proposer {

StreamTrace::StreamTrace(const TraceOptions& options, const std::string& method, tracing::RpcCall call)
    : options_(options) {
  call.method = absl::StrCat(v1::ProposalService::service_full_name(), "/Propose");
  stream_ = options.tracer.Begin({.name = call.method, .kind = tracing::SpanKind::kServer});
  stream_.attributes = tracing::RpcAttributes(call);
  stream_.attributes.push_back({"foretoken.proposer", method});
}

StreamTrace::~StreamTrace() {
  tracing::SetRpcStatus(status_, stream_);
  options_.tracer.End(std::move(stream_));
}

void StreamTrace::AddRequest(const tracing::TraceContext& request) {
  if (stream_.links.size() < kMaxLinks) stream_.links.push_back({.context = request, .is_remote = true});
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
  tracing::Span session =
      options.tracer.Begin({.name = "session", .kind = tracing::SpanKind::kServer, .remote_parent = request});
  if (!options.tracer.IsRecorded(session)) return nullptr;
  session.attributes = {{"foretoken.proposer", method},
                        {"foretoken.session.sample_index", static_cast<int64_t>(open.sample_index())}};
  if (const auto context = stream.context()) session.links = {{.context = *context}};
  stream.AddRequest(*request);
  return std::unique_ptr<SessionTrace>(new SessionTrace(options, std::move(session)));
}

SessionTrace::~SessionTrace() {
  session_.attributes.push_back({"foretoken.session.tokens", static_cast<int64_t>(position_)});
  session_.attributes.push_back({"foretoken.session.trees", num_trees_});
  session_.attributes.push_back({"foretoken.session.nodes", num_nodes_});
  options_.tracer.End(std::move(session_));
}

void SessionTrace::Ask(uint64_t position, int32_t node_budget, bool is_ready) {
  if (!options_.traces_proposals) return;
  proposal_ = options_.tracer.BeginChild(session_, "proposal");
  proposal_->kind = tracing::SpanKind::kServer;
  // The verifier makes its own span of the proposal later, so the link can only name the request's span.
  tracing::TraceContext request = session_.context;
  request.span_id = *session_.parent;
  proposal_->links = {{.context = request, .is_remote = true}};
  proposal_->attributes = {{"foretoken.proposal.position", static_cast<int64_t>(position)},
                           {"foretoken.proposal.node_budget", int64_t{node_budget}},
                           {"foretoken.proposal.was_ready", is_ready}};
}

void SessionTrace::Answer(int64_t num_nodes) {
  ++num_trees_;
  num_nodes_ += num_nodes;
  if (!proposal_.has_value()) return;
  proposal_->attributes.push_back({"foretoken.proposal.nodes", num_nodes});
  options_.tracer.End(*std::exchange(proposal_, std::nullopt));
}

}  // namespace foretoken::proposer
