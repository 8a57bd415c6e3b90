// SPDX-License-Identifier: Apache-2.0
// One model shared by ranks that each have a GPU, or share one: against the double-precision reference, and row
// invariant (E1). On GPUs, or everywhere on those that plain C++ emulates.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/reference/transformer.h"
#include "tests/testing/decode_by_hand.h"
#include "tests/testing/known_sequence.h"
#include "tests/testing/loaded_model.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/row_invariance.h"
#include "tests/testing/tiny_models.h"

namespace foretoken::model {
namespace {

using testing::KnownSequence;
using testing::LoadedModel;
using testing::RandomParents;

class CudaTensorParallel : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { checkpoint_ = std::make_unique<testing::RandomCheckpoint>("mistral"); }
  static void TearDownTestSuite() { checkpoint_.reset(); }

  void SetUp() override {
    const kernels::MadeBackend made = kernels::cuda::MakeBackend({.device = "cuda"});
    if (made.backend == nullptr) GTEST_SKIP() << made.error;
  }

  static LoadedModel Load() {
    return testing::LoadModel(checkpoint_->directory(),
                              {.num_ranks = GetParam(),
                               .num_blocks = testing::kExactBlocks,
                               .device = "cuda",
                               .make_backend = kernels::cuda::MakeBackend,
                               .transformer = {.max_rows = 96, .max_logit_rows = 96, .max_positions = 256}});
  }

  static inline std::unique_ptr<testing::RandomCheckpoint> checkpoint_;
};

// The tolerance is that of tests/common/model/tensor_parallel_test.cc.
TEST_P(CudaTensorParallel, ReproducesTheReference) {
  const auto reference = reference::Transformer::Load(checkpoint_->directory(), reference::Rounding::kBf16);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::vector<int32_t> tokens = testing::RandomTokens(40, reference->config().vocab_size, 5);
  const std::vector<size_t> positions = {0, 1, 33, 39};
  const auto expected = reference->Logits(std::vector<int64_t>(tokens.begin(), tokens.end()), positions);
  LoadedModel model = Load();
  ASSERT_EQ(model.kv.ranks.size(), GetParam());
  const auto rows =
      testing::DecodeChain(model, {.tokens = tokens, .block_table = testing::Iota(0, 3), .chunks = {30, 7, 1}});
  for (size_t i = 0; i < positions.size(); ++i) {
    ASSERT_EQ(rows[positions[i]].size(), expected[i].size());
    for (size_t v = 0; v < expected[i].size(); ++v) {
      ASSERT_NEAR(rows[positions[i]][v], expected[i][v], 3e-2) << "position " << positions[i] << " token " << v;
    }
  }
}

TEST_P(CudaTensorParallel, IsRowInvariant) {
  LoadedModel model = Load();
  const std::vector<KnownSequence> known = {
      DecodePlainly(model, {.num_tokens = 24, .parents = RandomParents(8, 1), .seed = 1}),
      DecodePlainly(model, {.num_tokens = 17, .parents = RandomParents(5, 2), .seed = 2})};
  EXPECT_TRUE(CheckTree(model, known[0]));
  EXPECT_TRUE(CheckMixedBatches(model, known, 3));
  EXPECT_TRUE(CheckMovedRows(model, known[0], testing::TreeSlots::kOverlapping));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaTensorParallel, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace foretoken::model
