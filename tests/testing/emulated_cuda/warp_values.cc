// SPDX-License-Identifier: Apache-2.0
// The exchange of values between a warp's threads.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace {

constexpr size_t kLanes = 32;

struct ShuffleOperand {
  float value;
  int lane_mask;
};

void RunShuffle(std::span<void* const> operands) {
  const auto lane_of = [&](size_t lane) { return static_cast<ShuffleOperand*>(operands[lane]); };
  float values[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) values[lane] = lane_of(lane)->value;
  for (size_t lane = 0; lane < kLanes; ++lane) lane_of(lane)->value = values[lane ^ lane_of(lane)->lane_mask];
}

template <const int& (*kCombine)(const int&, const int&)>
void RunReduction(std::span<void* const> operands) {
  int result = *static_cast<int*>(operands[0]);
  for (void* operand : operands) result = kCombine(result, *static_cast<int*>(operand));
  for (void* operand : operands) *static_cast<int*>(operand) = result;
}

}  // namespace

float __shfl_xor_sync(unsigned, float value, int lane_mask) {
  ShuffleOperand operand{.value = value, .lane_mask = lane_mask};
  foretoken::testing::MeetWarp(RunShuffle, &operand);
  return operand.value;
}

int __reduce_min_sync(unsigned, int value) {
  foretoken::testing::MeetWarp(RunReduction<std::min<int>>, &value);
  return value;
}

int __reduce_max_sync(unsigned, int value) {
  foretoken::testing::MeetWarp(RunReduction<std::max<int>>, &value);
  return value;
}

int __any_sync(unsigned lanes, int predicate) { return __reduce_max_sync(lanes, predicate != 0 ? 1 : 0); }
