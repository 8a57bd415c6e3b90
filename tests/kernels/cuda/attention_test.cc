// SPDX-License-Identifier: Apache-2.0
// The same cases as on the CPU, bit for bit row-invariant as there.
#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/attention_cases.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::HeadShape;

class AttentionTest : public OnDevice {
 protected:
  testing::AttentionOp op() {
    return [this](const AttentionArgs& args) { RunAttention(args); };
  }
};

TEST_F(AttentionTest, MatchesTheReference) {
  for (const HeadShape& shape : {HeadShape{1, 1, 2}, HeadShape{4, 2, 16}, HeadShape{3, 3, 10}, HeadShape{2, 1, 64},
                                 HeadShape{2, 1, 128}, HeadShape{2, 1, 256}}) {
    for (const int32_t num_tokens : {1, 32, 33, 300}) {
      for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(1), std::optional(75)}) {
        testing::ExpectAttentionMatchesTheReference(shape, num_tokens, window, op());
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(AttentionTest, GivesARowTheSameBitsHoweverItIsBatched) {
  for (const int32_t num_tokens : {1, 32, 70, 290}) {
    for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(100)}) {
      testing::ExpectAttentionIsRowInvariant({.num_heads = 2, .num_kv_heads = 1, .head_dim = 10}, num_tokens, window,
                                             op());
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace foretoken::kernels::cuda
