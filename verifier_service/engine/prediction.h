// SPDX-License-Identifier: Apache-2.0
// What a client predicts its output to be, as in editing a file: one more proposer of that request's sequences, inside
// the engine.
//
//   const Prediction prediction(token_ids, max_tokens);  // of a request, once
//   PredictionFollower follower(prediction);             // of each sample
//   follower.Append(output);                             // after every token
//   TokenTree tree = follower.Guess(max_nodes, bit);
//
// An *alignment* is a place in the prediction at which the output may stand. The output begins at the prediction's
// beginning. As long as it says what stands next there, it moves on; when it deviates, the alignments are those places
// behind which the longest end of the output stands, the nearest first: within a window around the place where it left,
// and anywhere for ends of at least kAnchorLength tokens, so that text that was moved is found, too. What was said
// may also have replaced as many predicted tokens, or stand before them: both are followed for a few tokens, and
// believed rather than a longer end elsewhere when the same number has agreed. So a text that was cut into other tokens
// than the model would say costs no more than its first ones.
//
// Chances grow with the number of tokens that agree, and are learned from the sequence itself (MatchConfidence). What a
// follower says depends on the output alone, not on how many tokens came at once.
//
// Cost: Append O(1) along the prediction, elsewhere O(kWindow + log tokens); Guess O(max_nodes). Memory: 12 bytes per
// token of the prediction, and a bit of each follower.
// Threads: a Prediction from any, a follower one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/speculation/match_confidence.h"
#include "common/speculation/token_tree.h"

namespace foretoken::verifier {

class Prediction {
 public:
  Prediction() = default;  // none
  // Only the first `max_tokens` are followed: no more can be said.
  Prediction(std::vector<int32_t> token_ids, int32_t max_tokens);

  bool empty() const { return token_ids_.empty(); }
  int64_t num_tokens() const { return num_tokens_; }  // those that are not followed included
  std::span<const int32_t> token_ids() const { return token_ids_; }

  // An end of the output that is found anywhere in the prediction has so many tokens.
  static constexpr int32_t kAnchorLength = 4;
  // Where the output's last kAnchorLength tokens may stand: in the lower 32 bits the index of the token behind them,
  // ascending. Hashes are compared, not tokens.
  std::span<const uint64_t> Anchors(std::span<const int32_t> output) const;

 private:
  int64_t num_tokens_ = 0;
  std::vector<int32_t> token_ids_;
  std::vector<uint64_t> anchors_;  // (hash of kAnchorLength tokens, index behind them), ascending
};

class PredictionFollower {
 public:
  // The prediction must outlive it.
  explicit PredictionFollower(const Prediction& prediction);

  // `output` is all that was generated so far; its last token is new.
  void Append(std::span<const int32_t> output);

  // At most max_nodes guesses, each with these proposer bits. The caller knows the position.
  speculation::TokenTree Guess(int32_t max_nodes, uint32_t proposers) const;

  // How many tokens of the prediction stood next and were said; each counts once.
  int64_t num_accepted() const { return num_accepted_; }
  int64_t num_rejected() const { return prediction_.num_tokens() - num_accepted_; }

 private:
  struct Alignment {
    int32_t next = 0;          // index of the token that the output may say next
    int32_t num_agreeing = 0;  // tokens before it that the output ends with
    bool is_guess = false;     // it was taken for what would stand next in order, before anything agreed
  };
  using Alignments = absl::InlinedVector<Alignment, 4>;

  Alignments MovedOn(int32_t token_id);
  Alignments Found(std::span<const int32_t> output) const;
  void Consider(int32_t next, std::span<const int32_t> output, Alignments* best) const;
  void AddGuesses(Alignments* best) const;
  float Chance(int32_t num_agreeing) const;
  void AddChain(const Alignment& alignment, int32_t max_nodes, speculation::TokenTree* tree) const;

  int32_t size() const { return static_cast<int32_t>(prediction_.token_ids().size()); }

  const Prediction& prediction_;
  Alignments alignments_;    // best first
  int32_t home_ = 0;         // where the best alignment stood when kAnchorLength tokens last agreed with it
  int32_t num_strayed_ = 0;  // tokens said since then
  speculation::MatchConfidence confidence_;
  std::vector<bool> is_accepted_;  // of the prediction's tokens
  int64_t num_accepted_ = 0;
};

}  // namespace foretoken::verifier
