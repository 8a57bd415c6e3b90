// SPDX-License-Identifier: Apache-2.0
// A client's prediction of its output, for example the old text when it edits a file. The engine uses it as one more
// proposer for the request's sequences.
//
//   const Prediction prediction(token_ids, max_tokens);  // once per request
//   PredictionFollower follower(prediction);             // once per sample
//   follower.Append(output);                             // after every token
//   TokenTree tree = follower.Guess(max_nodes, bit);
//
// An *alignment* is a possible place of the output's end in the prediction. The first alignment is the prediction's
// beginning. An alignment moves on while the output repeats the predicted tokens. When the output deviates, the
// follower searches for the longest suffix of the output in the prediction, and prefers the nearest place. It searches
// a window around the place of the deviation. It also searches the whole prediction for suffixes of at least
// kAnchorLength tokens, so that it finds text that was moved.
//
// A deviating token may also replace a predicted token, or be inserted before it. The follower keeps both as guessed
// alignments for a few tokens. A guessed alignment wins over a longer suffix elsewhere as soon as kAnchorLength tokens
// agree with it. So a prediction that is tokenized differently from the output loses only its first tokens.
//
// Chances grow with the number of agreeing tokens, and the follower learns them from the sequence (MatchConfidence).
// The guesses depend on the output alone, not on the number of tokens per step.
//
// Cost: Append O(1) along the prediction, elsewhere O(kWindow + log tokens); Guess O(max_nodes). Memory: 12 bytes per
// token of the prediction, and one bit per token in each follower.
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
  // Follows only the first `max_tokens`, because the output is no longer than that.
  Prediction(std::vector<int32_t> token_ids, int32_t max_tokens);

  bool empty() const { return token_ids_.empty(); }
  int64_t num_tokens() const { return num_tokens_; }  // including tokens that are not followed
  std::span<const int32_t> token_ids() const { return token_ids_; }

  // The length of the output suffixes that Anchors finds anywhere in the prediction.
  static constexpr int32_t kAnchorLength = 4;
  // The places at which the output's last kAnchorLength tokens may stand. The lower 32 bits hold the index of the token
  // behind them, ascending. Compares hashes, not tokens.
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

  // `output` is the whole output so far. Its last token is new.
  void Append(std::span<const int32_t> output);

  // Returns a tree of at most max_nodes guesses, each with these proposer bits. The caller sets the position.
  speculation::TokenTree Guess(int32_t max_nodes, uint32_t proposers) const;

  // Predicted tokens that were next in the best alignment and appeared in the output. Each counts once.
  int64_t num_accepted() const { return num_accepted_; }
  int64_t num_rejected() const { return prediction_.num_tokens() - num_accepted_; }

 private:
  struct Alignment {
    int32_t next = 0;          // index of the predicted next token
    int32_t num_agreeing = 0;  // tokens before it that match the output's end
    bool is_guess = false;     // a guess without an agreeing token, from the order alone
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
  int32_t home_ = 0;         // the best alignment's place when kAnchorLength tokens last agreed
  int32_t num_strayed_ = 0;  // tokens of the output since then
  speculation::MatchConfidence confidence_;
  std::vector<bool> is_accepted_;  // per predicted token
  int64_t num_accepted_ = 0;
};

}  // namespace foretoken::verifier
