// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/adjust_row.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cpu/base/workspace.h"
#include "kernels/cpu/draw/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/adjust_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr size_t kWordBits = 32;

// row = the logits where the mask's bit is set, kImpossible elsewhere. Values that fail x < inf stay.
void CopyMaskedRow(std::span<const float> logits, const uint32_t* mask, float* row) {
  HWY_ALIGN std::array<uint32_t, kWordBits> bits;
  for (size_t i = 0; i < kWordBits; ++i) bits[i] = uint32_t{1} << i;
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const size_t lanes = NumLanes();
  const FloatVec infinity = hn::Set(kFloat, std::numeric_limits<float>::infinity());
  const FloatVec impossible = hn::Set(kFloat, kImpossible);
  size_t begin = 0;
  for (; begin + kWordBits <= logits.size(); begin += kWordBits) {
    const auto word = hn::Set(word_tag, mask[begin / kWordBits]);
    for (size_t i = 0; i < kWordBits; i += lanes) {
      const FloatVec x = hn::LoadU(kFloat, logits.data() + begin + i);
      const auto is_allowed = hn::RebindMask(kFloat, hn::TestBit(word, hn::Load(word_tag, bits.data() + i)));
      const auto hides = hn::AndNot(is_allowed, hn::Lt(x, infinity));
      hn::StoreU(hn::IfThenElse(hides, impossible, x), kFloat, row + begin + i);
    }
  }
  for (size_t id = begin; id < logits.size(); ++id) {
    const bool is_allowed = (mask[id / kWordBits] & bits[id % kWordBits]) != 0;
    const bool hides = !is_allowed && logits[id] < std::numeric_limits<float>::infinity();
    row[id] = hides ? kImpossible : logits[id];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {
namespace {

bool HasPenalty(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

void Penalize(const SamplingParams& sampling, int64_t num_generated, float& logit) {
  logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
  if (num_generated == 0) return;
  logit -= sampling.frequency_penalty * static_cast<float>(num_generated);
  logit -= sampling.presence_penalty;
}

void PenalizeContext(const AdjustRowArgs& args, std::span<float> row) {
  const std::span<const int32_t> path = args.path_token_ids;
  const auto exists = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < row.size(); };
  for (const TokenCount& count : args.counts) {
    if (!exists(count.token_id)) continue;
    const auto on_path = std::count(path.begin(), path.end(), count.token_id);
    Penalize(args.sampling, count.num_generated + on_path, row[count.token_id]);
  }
  for (size_t i = 0; i < path.size(); ++i) {
    const int32_t id = path[i];
    if (!exists(id) || std::count(path.begin(), path.begin() + i, id) != 0) continue;
    const auto is_id = [id](const TokenCount& count) { return count.token_id == id; };
    if (std::any_of(args.counts.begin(), args.counts.end(), is_id)) continue;
    Penalize(args.sampling, std::count(path.begin(), path.end(), id), row[id]);
  }
}

}  // namespace

HWY_EXPORT(CopyMaskedRow);

// One pass copies the row and applies the mask. Neither bias nor penalty lifts -inf, so the result is the same as with
// the mask last.
std::span<const float> AdjustRow(const AdjustRowArgs& args) {
  const bool has_penalty = HasPenalty(args.sampling);
  if (args.bias.empty() && !has_penalty && args.mask == nullptr) return args.logits;
  const std::span<float> row(ThreadWorkspace<float>(args.logits.size()), args.logits.size());
  if (args.mask != nullptr) {
    HWY_DYNAMIC_DISPATCH(CopyMaskedRow)(args.logits, args.mask, row.data());
  } else {
    std::copy(args.logits.begin(), args.logits.end(), row.begin());
  }
  for (const LogitBias& bias : args.bias) {
    if (bias.token_id >= 0 && static_cast<size_t>(bias.token_id) < row.size()) row[bias.token_id] += bias.bias;
  }
  if (has_penalty) PenalizeContext(args, row);
  return row;
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
