// SPDX-License-Identifier: Apache-2.0
// One sample's place in its grammar, with the mask of its next token. It is also a proposer: where the grammar leaves
// only one way to go on, it guesses that way. Such guesses are nearly always right, so the fixed parts of a JSON text
// cost few steps. (Others call this jump-forward decoding; here the model still draws every token.) The model may cut a
// text into other tokens than the tokenizer. So where the same text must come again, as in the elements of a list, the
// follower guesses the tokens that the model drew before.
//
//   GrammarFollower follower(grammar, tokenizer, num_tokens);
//   follower.next_mask();                               // may come next
//   TokenTree tree = follower.Guess(max_nodes, bit);    // must come next
//   follower.Append(token);                             // for every token of the output
//
// Time: Guess makes at most one mask per token of a forced text, once, and none where several texts can follow.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/speculation/token_tree.h"
#include "common/tokenizer/tokenizer.h"
#include "verifier_service/grammar/grammar.h"
#include "verifier_service/grammar/grammar_matcher.h"

namespace foretoken::verifier {

// The time that this thread has computed. A grammar is not to blame for the time that other processes took.
absl::Time ThreadTime();

class GrammarFollower {
 public:
  static constexpr int32_t kMaxForcedTokens = 16;     // looked for at a time
  static constexpr size_t kMaxRememberedTexts = 512;  // further texts are not remembered

  // The tokenizer must outlive it. `num_tokens`: the V of the masks.
  GrammarFollower(std::shared_ptr<const Grammar> grammar, const tokenizer::Tokenizer& tokenizer, int32_t num_tokens,
                  Clock now = ThreadTime);

  // The token was drawn under next_mask.
  void Append(int32_t token_id);
  // [ceil(V / 32)] the tokens that may come next. Valid until Append.
  std::span<const uint32_t> next_mask();
  // The matcher gave up on a token of the output, or on next_mask(). Then no token may come.
  bool is_too_costly() const { return is_too_costly_; }
  // The indices of the nodes that the grammar allows below the output, ascending.
  std::vector<int32_t> AllowedNodes(const speculation::TokenTree& tree);
  // Fills the mask behind each node that the grammar allows below the output. The masks of the other nodes stay as they
  // are. [N, ceil(V / 32)]
  void FillNodeMasks(const speculation::TokenTree& tree, std::span<uint32_t> masks);
  // Returns a chain of at most max_nodes tokens that nearly certainly come next. The caller sets the position.
  speculation::TokenTree Guess(int32_t max_nodes, uint32_t proposers);

  // The time of all masks so far, with the time to follow tokens.
  absl::Duration time() const { return all_.time; }
  // That time, divided by the number of masks.
  absl::Duration mask_time() const { return all_.Mean(1); }
  int64_t num_masks() const { return all_.num; }
  // The mean time that the grammar takes for each token of the output: to fill the mask that it was drawn under, and to
  // follow it. A mask that a guess brought counts if the guess was right, so the time is the same without guesses. The
  // first masks and tokens may take the time of `min_num`.
  absl::Duration TokenTime(int64_t min_num) const { return output_masks_.Mean(min_num) + followed_.Mean(min_num); }

 private:
  struct Times {
    absl::Duration Mean(int64_t min_num) const { return time / std::max({num, min_num, int64_t{1}}); }

    absl::Duration time;
    int64_t num = 0;
  };
  // Adds the time between its construction and its destruction to all_, and to one of the other sums.
  class Stopwatch;

  void FillMask(std::span<uint32_t> mask);  // at the matcher's place
  void FollowGuess(int32_t token_id);
  absl::string_view BytesOf(int32_t token_id) const;  // empty for a special token
  std::string ForcedText(int32_t max_tokens);
  std::vector<int32_t> CutForcedText() const;
  std::optional<int32_t> LongestForced(std::span<const uint32_t> mask) const;

  const tokenizer::Tokenizer& tokenizer_;
  const int32_t num_tokens_;
  const Clock now_;
  GrammarMatcher matcher_;
  bool is_lost_ = false;  // the grammar refused a token of its own mask; no token may come
  bool is_too_costly_ = false;
  std::vector<uint32_t> next_mask_;
  bool has_next_mask_ = false;
  std::string forced_text_;                                 // must come next, as far as it was looked for
  absl::flat_hash_map<std::string, int32_t> first_tokens_;  // of forced texts, as the model drew them last
  Times all_;                                               // num: of masks
  Times output_masks_;                                      // of the masks that the output was drawn under
  Times followed_;                                          // num: of the output's tokens

  struct GuessMask {
    int32_t parent = speculation::kRootParent;
    int32_t token_id = 0;
    absl::Duration time;
  };
  std::vector<GuessMask> guess_masks_;            // of the last tree's nodes, while the output follows them
  int32_t guess_idx_ = speculation::kRootParent;  // the node that the output has come to
};

}  // namespace foretoken::verifier
