// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/grammar_masks.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

// A proposer gains little from a mask that forbids few tokens, and a mask has a bit per token of the vocabulary.
constexpr size_t kMinForbiddenPerAllowed = 7;
// The first masks may take the time of so many, because a mean over few says little.
constexpr int64_t kMinMasks = 32;
// The masks of a step cost at most the tokens of about so many steps, however the clocks of their times differ.
constexpr double kMostSteps = 100;

void Intersect(std::span<uint32_t> mask, std::span<const uint32_t> with) {
  for (size_t i = 0; i < mask.size(); ++i) mask[i] &= with[i];
}

// Takes what the request bans out of the mask of a row that draws after `num_generated` tokens.
void Restrict(const DrawMaskBits& bits, int32_t num_generated, std::span<uint32_t> mask) {
  if (!bits.late.empty()) Intersect(mask, bits.late);
  if (num_generated >= bits.min_tokens || bits.early.empty()) return;
  bool leaves_token = false;
  for (size_t i = 0; i < mask.size(); ++i) leaves_token = leaves_token || (mask[i] & bits.early[i]) != 0;
  if (leaves_token) Intersect(mask, bits.early);
}

// Fills [num_rows, num_words] masks: of the root, then of the nodes with rows. A forbidden node's row is never reached,
// so its mask stays empty.
void FillTree(const PlannedSequence& planned, size_t num_words, std::span<uint32_t> masks) {
  Sequence& sequence = *planned.sequence;
  GrammarFollower& grammar = *sequence.grammar;
  const DrawMaskBits& bits = sequence.active->mask_bits;
  std::ranges::copy(grammar.next_mask(), masks.begin());
  Restrict(bits, sequence.num_generated(), masks.first(num_words));
  const std::vector<speculation::TreeNode>& nodes = planned.tree.rows.nodes;
  std::vector<int32_t> depths(nodes.size());
  grammar.FillNodeMasks(planned.tree.rows, masks.subspan(num_words));
  for (size_t node = 0; node < nodes.size(); ++node) {
    depths[node] = nodes[node].parent == speculation::kRootParent ? 1 : depths[nodes[node].parent] + 1;
    Restrict(bits, sequence.num_generated() + depths[node], masks.subspan((node + 1) * num_words, num_words));
  }
}

// What the sequence's grammar took since its tenant has paid.
double NewMaskMs(const Sequence& sequence) {
  if (!sequence.grammar.has_value()) return 0;
  return absl::ToDoubleMilliseconds(sequence.grammar->time() - sequence.paid_grammar_time);
}

// The part of that time which was not hidden, for all of a step's sequences.
double DelayMs(double mask_ms, const StepPace& pace) { return std::max(0.0, mask_ms - pace.hidden_ms); }

double MeanMaskMs(const Sequence& sequence) {
  return sequence.grammar.has_value() ? absl::ToDoubleMilliseconds(sequence.grammar->mask_time()) : 0;
}

bool IsSlow(const Sequence& sequence) { return MeanMaskMs(sequence) > MaskTurns::kQuickMs; }

absl::Status TooCostly(absl::string_view expected_and_got) {
  return base::WithField(
      base::WithReason(absl::InvalidArgumentError(absl::StrCat("response_format: expected ", expected_and_got)),
                       kFormatTooCostly),
      "response_format");
}

}  // namespace

int64_t GrammarMasks::Fill(std::span<const PlannedSequence> plan, kernels::Backend& backend, TreeBatch& batch) {
  const auto planned_of = [&](size_t tree) -> const PlannedSequence& { return plan[batch.planned_idx[tree]]; };
  size_t num_rows = 0, num_words = 0;
  for (size_t i = 0; i < batch.trees.size(); ++i) {
    if (!planned_of(i).sequence->grammar.has_value()) continue;
    num_rows += static_cast<size_t>(batch.trees[i].num_rows);
    num_words = planned_of(i).sequence->grammar->next_mask().size();
  }
  if (num_rows == 0) return 0;
  words_.assign(num_rows * num_words, 0u);
  const size_t num_bytes = words_.size() * sizeof(uint32_t);
  if (num_bytes > num_device_bytes_) {
    device_ = backend.Allocate(num_bytes);
    num_device_bytes_ = num_bytes;
  }
  const auto* device_mask = static_cast<const uint32_t*>(device_.get());
  std::span<uint32_t> rest(words_);
  for (size_t i = 0; i < batch.trees.size(); ++i) {
    if (!planned_of(i).sequence->grammar.has_value()) continue;
    const auto tree_rows = static_cast<size_t>(batch.trees[i].num_rows);
    FillTree(planned_of(i), num_words, rest.first(tree_rows * num_words));
    rest = rest.subspan(tree_rows * num_words);
    const size_t first_mask = batch.trees[i].masks.data() - batch.node_masks.data();
    for (size_t row = 0; row < tree_rows; ++row, device_mask += num_words) {
      batch.node_masks[first_mask + row] = device_mask;
    }
  }
  backend.Copy(device_.get(), words_.data(), num_bytes, kernels::CopyKind::kToDevice);
  return static_cast<int64_t>(num_rows);
}

std::span<const uint32_t> AllowedTokens(Sequence& sequence) {
  if (!sequence.grammar.has_value()) return {};
  const std::span<const uint32_t> mask = sequence.grammar->next_mask();
  size_t num_allowed = 0;
  for (const uint32_t word : mask) num_allowed += static_cast<size_t>(std::popcount(word));
  const bool is_narrow = num_allowed * (kMinForbiddenPerAllowed + 1) <= mask.size() * 32;
  return is_narrow ? mask : std::span<const uint32_t>();
}

void ChargeMasks(const StepPace& pace, Scheduler& scheduler) {
  double grammars_ms = 0;
  for (const auto& sequence : scheduler.running()) grammars_ms += NewMaskMs(*sequence);
  if (grammars_ms <= 0 || pace.ms <= 0) return;
  const double delay_ms = DelayMs(grammars_ms, pace);
  const double other_ms = std::max(pace.ms - delay_ms, pace.ms / kMostSteps);
  const double tokens_per_ms = delay_ms / grammars_ms * pace.num_tokens / other_ms;
  for (const auto& sequence : scheduler.running()) {
    if (!sequence->grammar.has_value()) continue;
    scheduler.Charge(*sequence, NewMaskMs(*sequence) * tokens_per_ms);
    sequence->paid_grammar_time = sequence->grammar->time();
  }
}

void MaskTurns::Begin(Sequence& sequence) {
  if (!sequence.grammar.has_value()) return;
  (void)sequence.grammar->next_mask();
  begins_left_ms_ -= NewMaskMs(sequence);
}

int32_t MaskTurns::Give(Scheduler& scheduler) {
  std::vector<Sequence*> slow;
  bool others_wait = false;
  for (const auto& sequence : scheduler.running()) {
    sequence->sits_out = false;
    if (!IsSlow(*sequence)) others_wait = true;
    if (IsSlow(*sequence) && sequence->decodes()) slow.push_back(sequence.get());
  }
  if (!others_wait) return 0;
  // In the order of ids, from the one after the last turn's.
  const auto next = std::ranges::find_if(slow, [this](const Sequence* s) { return s->id > last_; });
  std::rotate(slow.begin(), next, slow.end());
  double left_ms = left_ms_;
  int32_t num_sit_out = 0;
  for (Sequence* sequence : slow) {
    if (left_ms > 0) {
      left_ms -= MeanMaskMs(*sequence);
      last_ = sequence->id;
    } else {
      sequence->sits_out = true;
      scheduler.Charge(*sequence, 1);
      ++num_sit_out;
    }
  }
  return num_sit_out;
}

void MaskTurns::Observe(std::span<const std::unique_ptr<Sequence>> running, const StepPace& pace) {
  double all_ms = 0, slow_ms = 0;
  bool others_waited = false;
  for (const auto& sequence : running) {
    all_ms += NewMaskMs(*sequence);
    slow_ms += IsSlow(*sequence) ? NewMaskMs(*sequence) : 0;
    others_waited = others_waited || !IsSlow(*sequence);
  }
  if (all_ms > 0) slow_ms *= DelayMs(all_ms, pace) / all_ms;
  const double other_ms = std::max(0.0, pace.ms - slow_ms);
  left_ms_ = std::min(kMaxTurnMs, left_ms_ + other_ms - (others_waited ? slow_ms : 0));
  begins_left_ms_ = std::min(kMaxTurnMs, begins_left_ms_ + other_ms);
}

absl::Status CheckMasks(Sequence& sequence, absl::Duration max_mean, bool found_tokens) {
  if (!sequence.grammar.has_value()) return absl::OkStatus();
  GrammarFollower& grammar = *sequence.grammar;
  const bool leaves_token =
      found_tokens || !std::ranges::all_of(grammar.next_mask(), [](uint32_t word) { return word == 0; });
  if (grammar.is_too_costly()) {
    return TooCostly(absl::StrCat("a text that has at most ", GrammarMatcher::kMaxWork,
                                  " parser states at a token and ", GrammarMatcher::kMaxStates, " in all, got more"));
  }
  if (!leaves_token) {
    return base::WithField(
        base::WithReason(absl::InvalidArgumentError("response_format: no token can follow this output in the form"),
                         "NO_TOKEN_TO_DRAW"),
        "response_format");
  }
  if (grammar.TokenTime(kMinMasks) <= max_mean) return absl::OkStatus();
  return TooCostly(absl::StrCat("a form whose masks take at most ", absl::FormatDuration(max_mean),
                                " each, got a mean of ", absl::FormatDuration(grammar.TokenTime(1))));
}

}  // namespace foretoken::verifier
