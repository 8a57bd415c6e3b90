// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar_follower.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace foretoken::verifier {
namespace {

// If one text must come, only its beginnings may come as tokens, and no token has more beginnings than this.
constexpr int32_t kMaxBeginnings = 32;
// The stated chance of a guess. The model may cut the text into other tokens. Calibration learns how often it does.
constexpr float kChance = 0.9f;

}  // namespace

absl::Time ThreadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::TimeFromTimespec(time);
}

class GrammarFollower::Stopwatch {
 public:
  explicit Stopwatch(GrammarFollower& follower, Times* kind = nullptr)
      : follower_(follower), kind_(kind), began_(follower.now_()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    const absl::Duration time = follower_.now_() - began_;
    follower_.all_.time += time;
    if (kind_ == nullptr) return;
    kind_->time += time;
    ++kind_->num;
  }

 private:
  GrammarFollower& follower_;
  Times* const kind_;
  const absl::Time began_;
};

GrammarFollower::GrammarFollower(std::shared_ptr<const Grammar> grammar, const tokenizer::Tokenizer& tokenizer,
                                 int32_t num_tokens, Clock now)
    : tokenizer_(tokenizer),
      num_tokens_(num_tokens),
      now_(std::move(now)),
      matcher_(std::move(grammar)),
      next_mask_((num_tokens + 31) / 32) {}

void GrammarFollower::Append(int32_t token_id) {
  const Stopwatch stopwatch(*this, &followed_);
  FollowGuess(token_id);
  has_next_mask_ = false;
  if (!matcher_.Accept(token_id)) {
    is_lost_ = true;
    is_too_costly_ = is_too_costly_ || matcher_.has_given_up();
  }
  const absl::string_view bytes = BytesOf(token_id);
  if (!forced_text_.empty() && (first_tokens_.size() < kMaxRememberedTexts || first_tokens_.contains(forced_text_))) {
    first_tokens_[forced_text_] = token_id;
  }
  // A token that is longer than the rest of the forced text, or has no bytes, ends it.
  forced_text_.erase(0, absl::StartsWith(forced_text_, bytes) ? bytes.size() : forced_text_.npos);
}

void GrammarFollower::FollowGuess(int32_t token_id) {
  if (guess_idx_ != speculation::kRootParent && !has_next_mask_) {  // the token was drawn under the guess's mask
    output_masks_.time += guess_masks_[guess_idx_].time;
    ++output_masks_.num;
  }
  const auto next = std::ranges::find_if(
      guess_masks_, [&](const GuessMask& guess) { return guess.parent == guess_idx_ && guess.token_id == token_id; });
  if (next != guess_masks_.end()) {
    guess_idx_ = static_cast<int32_t>(next - guess_masks_.begin());
  } else {
    guess_masks_.clear();
    guess_idx_ = speculation::kRootParent;
  }
}

void GrammarFollower::FillMask(std::span<uint32_t> mask) {
  ++all_.num;
  if (is_lost_) {
    std::ranges::fill(mask, 0u);
  } else {
    matcher_.FillMask(mask);
  }
}

std::vector<int32_t> GrammarFollower::AllowedNodes(const speculation::TokenTree& tree) {
  const Stopwatch stopwatch(*this);
  std::vector<int32_t> allowed;
  VisitAllowed(tree, matcher_, [&](int32_t node_idx) { allowed.push_back(node_idx); });
  std::ranges::sort(allowed);
  return allowed;
}

void GrammarFollower::FillNodeMasks(const speculation::TokenTree& tree, std::span<uint32_t> masks) {
  const Stopwatch stopwatch(*this);
  const size_t num_words = next_mask_.size();
  guess_masks_.clear();
  for (const speculation::TreeNode& node : tree.nodes) guess_masks_.push_back({node.parent, node.token_id, {}});
  guess_idx_ = speculation::kRootParent;
  VisitAllowed(tree, matcher_, [&](int32_t node_idx) {
    const absl::Time began = now_();
    FillMask(masks.subspan(static_cast<size_t>(node_idx) * num_words, num_words));
    guess_masks_[node_idx].time = now_() - began;
  });
}

std::span<const uint32_t> GrammarFollower::next_mask() {
  if (!std::exchange(has_next_mask_, true)) {
    const Stopwatch stopwatch(*this, &output_masks_);
    FillMask(next_mask_);
    is_too_costly_ = is_too_costly_ || matcher_.has_given_up();
  }
  return next_mask_;
}

absl::string_view GrammarFollower::BytesOf(int32_t token_id) const {
  const tokenizer::Token* const token = tokenizer_.vocabulary().Find(token_id);
  return token == nullptr || token->special ? absl::string_view() : absl::string_view(token->bytes);
}

// Returns the longest of the tokens that may come, if all others are its beginnings.
std::optional<int32_t> GrammarFollower::LongestForced(std::span<const uint32_t> mask) const {
  int32_t num_ids = 0;
  for (const uint32_t word : mask) num_ids += std::popcount(word);
  if (num_ids == 0 || num_ids > kMaxBeginnings) return std::nullopt;
  std::vector<int32_t> ids;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      ids.push_back(static_cast<int32_t>(word * 32) + std::countr_zero(bits));
    }
  }
  const auto bytes_of = [this](int32_t id) { return BytesOf(id); };
  const int32_t longest = *std::ranges::max_element(ids, {}, [&](int32_t id) { return bytes_of(id).size(); });
  const auto begins_longest = [&](int32_t id) {
    return !bytes_of(id).empty() && absl::StartsWith(bytes_of(longest), bytes_of(id));  // an end token has no bytes
  };
  return std::ranges::all_of(ids, begins_longest) ? std::optional(longest) : std::nullopt;
}

// Returns the text that must come next, as far as `max_tokens` of the longest tokens reach.
std::string GrammarFollower::ForcedText(int32_t max_tokens) {
  std::string text;
  std::vector<uint32_t> mask(next_mask().begin(), next_mask().end());
  const Stopwatch stopwatch(*this);
  int32_t num_accepted = 0;
  while (num_accepted < max_tokens) {
    const std::optional<int32_t> forced = LongestForced(mask);
    if (!forced.has_value() || !matcher_.Accept(*forced)) break;
    absl::StrAppend(&text, BytesOf(*forced));
    if (++num_accepted < max_tokens) FillMask(mask);
  }
  matcher_.Rollback(num_accepted);
  return text;
}

// Returns the tokens of the forced text: as the model cut it before, and from there on as the tokenizer does, because
// the model has mostly seen texts in the tokenizer's own tokens. It ends before a token that the model has no row for.
std::vector<int32_t> GrammarFollower::CutForcedText() const {
  std::vector<int32_t> ids;
  absl::string_view rest = forced_text_;
  for (auto drawn = first_tokens_.find(rest); !rest.empty() && drawn != first_tokens_.end();
       drawn = first_tokens_.find(rest)) {
    const absl::string_view bytes = BytesOf(drawn->second);
    if (bytes.empty() || !absl::StartsWith(rest, bytes)) break;  // it was longer than the text
    ids.push_back(drawn->second);
    rest.remove_prefix(bytes.size());
  }
  if (rest.empty()) return ids;
  const absl::StatusOr<std::vector<int32_t>> others = tokenizer_.Encode(rest, {.add_special_tokens = false});
  if (!others.ok()) return ids;
  const auto end = std::ranges::find_if(*others, [this](int32_t id) { return id >= num_tokens_; });
  ids.insert(ids.end(), others->begin(), end);
  return ids;
}

speculation::TokenTree GrammarFollower::Guess(int32_t max_nodes, uint32_t proposers) {
  speculation::TokenTree tree;
  if (forced_text_.empty()) forced_text_ = ForcedText(kMaxForcedTokens);
  for (const int32_t token_id : CutForcedText()) {
    if (tree.num_nodes() == max_nodes) break;
    tree.Append({.token_id = token_id, .parent = tree.num_nodes() - 1, .chance = kChance, .proposers = proposers});
  }
  return tree;
}

}  // namespace foretoken::verifier
