// SPDX-License-Identifier: Apache-2.0
// The stream of a verifier that may send anything, at the session table of a proposer. Every answer keeps the
// protocol's limits, is about sessions that the verifier named, and has only valid trees.
//
//   VerifierStream stream(proposer, limits);
//   if (!stream.Take(bytes)) return;  // the message ends the stream
//   stream.TakeAnswers();
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/tree_conversion.h"
#include "kernels/check.h"
#include "proposer_service/event_checks.h"
#include "proposer_service/session_table.h"

namespace foretoken::testing {

class VerifierStream {
 public:
  // The proposer outlives the stream.
  VerifierStream(proposer::Proposer& proposer, const proposer::SessionLimits& limits)
      : limits_(limits), room_(limits, Metrics().room()), table_(EnvironmentOf(proposer)) {}

  // Applies the bytes of the next message. False: they end the stream.
  bool Take(absl::string_view bytes) {
    static const rpc::MessageBounds bounds = proposer::RequestBounds();
    v1::ProposeRequest request;
    if (!rpc::ParseMessage(bytes, bounds, request).ok() || !table_.Apply(request).ok()) return false;
    for (const v1::OpenSession& open : request.opens()) named_.insert(open.session_id());
    for (const v1::AdvanceSession& advance : request.advances()) named_.insert(advance.session_id());
    return true;
  }

  // Takes what the table has to say, also about the sessions that have announced something.
  void TakeAnswers() {
    for (const uint64_t session_id : std::exchange(announced_, {})) table_.Announce(session_id);
    for (v1::ProposeResponse response; table_.HasResponse() && table_.TakeResponse(response);) Check(response);
  }

 private:
  static proposer::ProposerMetrics& Metrics() {
    static telemetry::Metrics registry;
    static proposer::ProposerMetrics metrics(registry, {});
    return metrics;
  }

  proposer::SessionTable::Environment EnvironmentOf(proposer::Proposer& proposer) {
    static const proposer::TraceOptions traces = {
        .tracer = tracing::Tracer(
            tracing::Sampler(), [] { return uint64_t{1}; }, [](const tracing::Span&) {}),
        .traces_proposals = true};
    return {.proposer = proposer,
            .room = room_,
            .metrics = Metrics(),
            .trace = &traces,
            .announce = [this](uint64_t session_id) { announced_.push_back(session_id); }};
  }

  void Check(const v1::ProposeResponse& response) const {
    FT_CHECK(response.ByteSizeLong() <= size_t{rpc::kMaxProposeResponseBytes});
    for (const v1::TokenTree& tree : response.trees()) CheckTree(tree);
    for (const v1::RefusedSession& refused : response.refusals()) {
      FT_CHECK(named_.contains(refused.session_id()));
      FT_CHECK(refused.reason() != v1::REFUSAL_REASON_UNSPECIFIED);
      FT_CHECK(refused.detail().size() <= rpc::kMaxRefusalDetailBytes);
    }
    for (const uint64_t session_id : response.unknown_session_ids()) FT_CHECK(named_.contains(session_id));
  }

  void CheckTree(const v1::TokenTree& tree) const {
    FT_CHECK(named_.contains(tree.session_id()));
    FT_CHECK(tree.position() <= static_cast<uint64_t>(limits_.max_context_tokens));
    constexpr int32_t kMaxId = std::numeric_limits<int32_t>::max();
    for (const uint32_t id : tree.token_ids()) {
      if (id == kMaxId) return;  // a valid id that no limit below can allow
    }
    FT_CHECK(rpc::FromProto(tree, {.num_tokens = kMaxId, .max_nodes = limits_.max_tree_nodes, .proposers = 1}).ok());
  }

  const proposer::SessionLimits limits_;
  proposer::SessionRoom room_;
  std::set<uint64_t> named_;         // sessions
  std::vector<uint64_t> announced_;  // sessions, since the last answers
  proposer::SessionTable table_;
};

}  // namespace foretoken::testing
