// SPDX-License-Identifier: Apache-2.0
// The spans of one session whose request is traced. They belong to the request's trace, because the stream that carries
// the session is shared by many requests:
//
//   foretoken.v1.ProposalService/Propose   from the session's opening to its end
//     proposal                             a tree, from the verifier's question to the answer; only on request
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/tracing/tracer.h"
#include "foretoken/v1/proposal.pb.h"

namespace foretoken::proposer {

struct TraceOptions {
  tracing::Tracer tracer = {};
  bool traces_proposals = false;
};

class SessionTrace {
 public:
  // Null if the request's trace is not recorded. The options outlive the trace.
  static std::unique_ptr<SessionTrace> Begin(const TraceOptions& options, const std::string& method,
                                             const v1::OpenSession& open);
  // Ends the session's span.
  ~SessionTrace();
  SessionTrace(const SessionTrace&) = delete;
  SessionTrace& operator=(const SessionTrace&) = delete;

  // The verifier asks for a tree. `is_ready`: the proposer had it already.
  void Ask(uint64_t position, int32_t node_budget, bool is_ready);
  // The tree leaves.
  void Answer(int64_t num_nodes);
  // The number of the session's tokens, for the span's end.
  void SetPosition(uint64_t position) { position_ = position; }

 private:
  SessionTrace(const TraceOptions& options, tracing::Span session) : options_(options), session_(std::move(session)) {}

  const TraceOptions& options_;
  tracing::Span session_;
  std::optional<tracing::Span> proposal_;  // asked for and not answered
  uint64_t position_ = 0;
  int64_t num_trees_ = 0, num_nodes_ = 0;
};

}  // namespace foretoken::proposer
