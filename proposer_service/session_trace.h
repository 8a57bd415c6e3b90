// SPDX-License-Identifier: Apache-2.0
// The spans of a stream and of its sessions. The stream carries the sessions of many requests, so its own span is a
// trace of its own, and the spans of a session belong to the trace of its request. Links lead from each to the other:
//
//   foretoken.v1.ProposalService/Propose   the stream; links to the requests that it served
//
//   session                                from its opening to its end, below the request's span; links to the stream
//     proposal                             a tree, from the verifier's question to its end; only if the options ask for
//                                          it; links to the request's span
//
// A question ends with its answer, with the verifier's next question, or with the session. A better tree that the
// proposer sends of its own accord has a span without a length.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tracing/rpc_span.h"
#include "common/tracing/span_clock.h"
#include "common/tracing/tracer.h"
#include "foretoken/v1/proposal.pb.h"

namespace foretoken::proposer {

struct TraceOptions {
  tracing::Tracer tracer = {};
  bool traces_proposals = false;
};

// A stream's own span. It is there also if it is not recorded.
class StreamTrace {
 public:
  // A stream lives for days; it keeps links to its first requests.
  static constexpr size_t kMaxLinks = 128;

  // The options outlive the trace. `method` is the proposer's. The call's own method may be left out.
  StreamTrace(const TraceOptions& options, const std::string& method, tracing::RpcCall call);
  // Ends the stream's span, with the last status or CANCELLED.
  ~StreamTrace();
  StreamTrace(const StreamTrace&) = delete;
  StreamTrace& operator=(const StreamTrace&) = delete;

  void SetStatus(const absl::Status& status) { status_ = status; }
  void AddRequest(const tracing::TraceContext& request);
  // Unset if the stream's span is not recorded.
  std::optional<tracing::TraceContext> context() const;

 private:
  const TraceOptions& options_;
  const tracing::SpanClock clock_;
  tracing::Span stream_;
  std::optional<tracing::TraceContext> last_dropped_;  // the other samples of this request come next
  absl::Status status_ = absl::CancelledError();
};

class SessionTrace {
 public:
  // Null if the request's trace is not recorded. The options outlive the trace.
  static std::unique_ptr<SessionTrace> Begin(const TraceOptions& options, const std::string& method,
                                             const v1::OpenSession& open, StreamTrace& stream);
  // Ends the session's span.
  ~SessionTrace();
  SessionTrace(const SessionTrace&) = delete;
  SessionTrace& operator=(const SessionTrace&) = delete;

  // The verifier asks for a tree or, with node_budget 0, for no tree. `was_ready`: one had been grown already.
  void Ask(int32_t node_budget, bool was_ready);
  // A tree leaves.
  void Answer(int64_t num_nodes);
  // The number of the session's tokens.
  void SetPosition(uint64_t position) { position_ = position; }

 private:
  SessionTrace(const TraceOptions& options, const tracing::SpanClock& clock, tracing::Span session)
      : options_(options), clock_(clock), session_(std::move(session)) {}

  tracing::Span BeginProposal(absl::Time begin) const;
  // Ends the span of the open question, if there is one.
  void EndProposal(absl::string_view outcome, absl::Time end);

  const TraceOptions& options_;
  const tracing::SpanClock clock_;
  tracing::Span session_;
  std::optional<tracing::Span> proposal_;  // asked for and not answered
  uint64_t position_ = 0;
  int64_t num_trees_ = 0, num_nodes_ = 0;
};

}  // namespace foretoken::proposer
