// SPDX-License-Identifier: Apache-2.0
// What stands behind the proposal protocol: something that reads along with sequences and guesses how they go on.
//
// Example:
//   std::unique_ptr<Session> session = proposer.Open({.seed = 7});
//   session->Append(prompt);
//   session->Want({.node_budget = 32});
//   std::vector<TokenTree> trees = proposer.Propose({{session.get(), 32}});
//
// A session is a handle that its stream owns, so two streams may use the same session ids and everything of a stream
// dies with it. Proposing takes a batch, so that a draft model runs one forward pass for many sessions.
//
// A proposer may need time: a session that is not ready yet is asked again when it announces news, and one that is
// ready may announce that its tree has become better. So a tree can be grown while nobody waits for it.
//
// Threads: a proposer serves many streams at once, so Open and Propose may run concurrently. One session is used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::proposer {

struct ProposerDescription {
  std::string method;                                // the name that requests and metrics use
  std::string vocabulary_fingerprint = {};           // hex; empty: works with any vocabulary
  std::vector<uint64_t> token_digests = {};          // tokenizer::TokenDigests, where it is bound to a vocabulary
  std::optional<int32_t> num_tokens = std::nullopt;  // it knows ids below this; unset: any
  std::optional<int64_t> max_context_tokens = std::nullopt;  // of a session; unset: no limit of its own
};

// How the target's tokens are chosen, for proposers that draw alike. As OpenSession in the protocol.
struct SessionIntroduction {
  kernels::VerificationRule rule = kernels::VerificationRule::kKeyedDraw;
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  float temperature = 1;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::string tenant;
  std::string vocabulary = {};  // fingerprint in hex, of the stream; empty: not told
  // Called when the session becomes ready or refused, or has a better tree than Propose last gave. From any thread and
  // perhaps after the session is gone, but never from within a call of the session or the proposer. May be null.
  std::function<void()> announce = {};
};

enum class Readiness {
  kReady,    // Propose has a tree, which may be empty
  kNotYet,   // it has none for this position; an announcement follows
  kRefused,  // there is no room for the session; it is of no use any more
};

// What the verifier wants of a session from now on.
struct TreeRequest {
  // How many nodes its trees may have, at least 0. 0: none are wanted, and none need be prepared: the session sleeps
  // until it is asked again.
  int32_t node_budget = 0;
  // How long the verifier waits for the tree before it starts its next step, and how long it expects that step to take;
  // zero: not known. So a proposer may say kNotYet while a better tree is worth the wait.
  absl::Duration until_next_step;
  absl::Duration step;
};

// The mirror of one sequence.
class Session {
 public:
  virtual ~Session() = default;
  // Takes over committed tokens, all >= 0.
  virtual void Append(std::span<const int32_t> token_ids) = 0;
  // Called whenever the tokens that belong together were appended. The first call says that the opening context is
  // whole: what is appended from then on was generated.
  virtual void Want(const TreeRequest& /*tree_request*/) {}
  // How many tokens were appended.
  virtual uint64_t position() const = 0;
  virtual Readiness readiness() const { return Readiness::kReady; }
};

struct ProposalRequest {
  Session* session = nullptr;  // opened by the proposer that is asked
  int32_t node_budget = 0;     // at least 0
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // The same at all times.
  virtual const ProposerDescription& Describe() const = 0;
  virtual std::unique_ptr<Session> Open(const SessionIntroduction& introduction) = 0;
  // One tree per request, in their order, each of at most node_budget nodes and at the session's position. Empty where
  // there is no guess. TokenTree::proposers stays empty: who proposed is the verifier's business. Either all children
  // are guesses, or all are sampled (TokenTree::sampled), siblings in the order of sampling; what sampled children must
  // keep to stands with DRAW_METHOD_SAMPLED in the protocol.
  virtual std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) = 0;
};

}  // namespace foretoken::proposer
