// SPDX-License-Identifier: Apache-2.0
// The interface behind the proposal protocol: a proposer follows sequences and guesses their next tokens.
//
// Example:
//   std::unique_ptr<Session> session = proposer.Open({.seed = 7});
//   session->Append(prompt);
//   session->Want({.node_budget = 32});
//   std::vector<TokenTree> trees = proposer.Propose({{session.get(), 32}});
//
// A stream owns its sessions. So two streams may use the same session ids, and all sessions of a stream end with it.
// Propose takes a batch of sessions, so a draft model runs one forward pass for many sessions.
//
// A proposer may need time. A session that is not ready announces its tree later, and a ready session may announce a
// better tree. So a proposer can grow trees while no verifier waits for them.
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
#include "common/speculation/allowed_tokens.h"
#include "common/speculation/target_features.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::proposer {

struct ProposerDescription {
  std::string method;                        // the name that requests and metrics use
  std::string vocabulary_fingerprint = {};   // hex; empty: works with any vocabulary
  std::vector<uint64_t> token_digests = {};  // tokenizer::TokenDigests of the proposer's vocabulary, if it has one
  std::optional<int32_t> num_tokens = std::nullopt;          // the proposer knows the ids below this; unset: all ids
  std::optional<int64_t> max_context_tokens = std::nullopt;  // of a session; unset: no limit of its own
  // Set: the proposer reads the target's hidden states, and its sessions get Session::AppendFeatures. Shared, because a
  // projection can be large.
  std::shared_ptr<const speculation::TargetFeatures> features = nullptr;
};

// How the verifier chooses the target's tokens, for proposers that draw in the same way. As OpenSession in the
// protocol.
struct SessionIntroduction {
  kernels::VerificationRule rule = kernels::VerificationRule::kKeyedDraw;
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  float temperature = 1;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::string tenant;
  std::string vocabulary = {};  // the stream's vocabulary fingerprint in hex; empty: not told
  // The proposer calls this when the session becomes ready, is refused, or has a better tree than Propose gave last.
  // The call may come from any thread, and after the session has ended. It never comes from inside a call of the
  // session or the proposer. May be null.
  std::function<void()> announce = {};
};

enum class Readiness {
  kReady,    // Propose has a tree, which may be empty
  kNotYet,   // the session has no tree for this position; an announcement follows
  kRefused,  // the proposer has no room for the session and will not propose for it
  // The proposer gave up what it knew of the context. It would need the features of all positions again.
  kForgotten,
};

// The tree that the verifier asks of a session, from now on.
struct TreeRequest {
  // The most nodes of a tree, at least 0. 0: the verifier wants no trees. The session is idle until a later request,
  // and the proposer need not prepare trees.
  int32_t node_budget = 0;
  // How long the verifier waits for the tree before it starts its next step, and how long it expects that step to take.
  // Zero: not known. A proposer may answer kNotYet while a better tree is worth the wait.
  absl::Duration until_next_step;
  absl::Duration step;
  // The tokens that may come next. The children of the root are among them, and nothing is said of deeper nodes.
  // Further tokens end the restriction.
  speculation::AllowedTokens allowed = {};
};

// A proposer's mirror of one sequence.
class Session {
 public:
  virtual ~Session() = default;
  // Appends committed tokens. All ids are at least 0.
  virtual void Append(std::span<const int32_t> token_ids) = 0;
  // Appends features of consecutive positions, [n, width] bf16, where the description has features. The feature of a
  // position is made from that position's token and the tokens before it. The first call may begin at any position:
  // then features before it do not exist. Every later call begins where the last one ended. No position is beyond the
  // last appended token. Features may come later than their tokens, or not at all.
  virtual void AppendFeatures(uint64_t /*first_position*/, std::span<const uint16_t> /*values*/) {}
  // The number of values of appended features that the proposer has not used yet, for flow control.
  virtual int64_t num_unused_feature_values() const { return 0; }
  // Sets the request for trees. The service calls this when all tokens and features of a verifier's message have been
  // appended; the first call comes before tokens behind it, and marks the end of the opening context: later tokens were
  // generated.
  virtual void Want(const TreeRequest& /*tree_request*/) {}
  // The number of appended tokens.
  virtual uint64_t position() const = 0;
  virtual Readiness readiness() const { return Readiness::kReady; }
  // Whether there is a tree for all appended tokens already, grown before anyone asked.
  virtual bool has_grown_tree() const { return false; }
};

struct ProposalRequest {
  Session* session = nullptr;  // opened by this proposer
  int32_t node_budget = 0;     // at least 0
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Returns the same description at all times.
  virtual const ProposerDescription& Describe() const = 0;
  virtual std::unique_ptr<Session> Open(const SessionIntroduction& introduction) = 0;
  // Returns one tree per request, in the order of the requests. A tree stands at its session's position and has at most
  // node_budget nodes. A tree is empty where the proposer has no guess. TokenTree::proposers stays empty, because the
  // verifier fills it. Either all children of a tree are guesses, or all are sampled (TokenTree::sampled) and siblings
  // stand in the order of sampling. DRAW_METHOD_SAMPLED in the protocol gives the rules for sampled children.
  virtual std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) = 0;
};

}  // namespace foretoken::proposer
