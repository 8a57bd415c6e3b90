// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_trace.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::proposer {

std::unique_ptr<SessionTrace> SessionTrace::Begin(const TraceOptions& options, const std::string& method,
                                                  const v1::OpenSession& open) {
  if (open.traceparent().empty()) return nullptr;
  const std::optional<tracing::TraceContext> request = tracing::ParseTraceContext(open.traceparent());
  if (!request.has_value()) return nullptr;
  const std::string rpc = absl::StrCat(v1::ProposalService::service_full_name(), "/Propose");
  tracing::Span session =
      options.tracer.Begin({.name = rpc, .kind = tracing::SpanKind::kServer, .remote_parent = request});
  if (!options.tracer.IsRecorded(session)) return nullptr;
  session.attributes = {{"rpc.system.name", "grpc"},
                        {"rpc.method", rpc},
                        {"foretoken.proposer", method},
                        {"foretoken.session.sample_index", static_cast<int64_t>(open.sample_index())}};
  session.links = {{.context = *request}};
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
