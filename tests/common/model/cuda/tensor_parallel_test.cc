// SPDX-License-Identifier: Apache-2.0
// One model shared by ranks, with a GPU each or with one for all: against the double-precision reference, and row
// invariant (E1). It runs on GPUs, and everywhere on emulated ones. If this test fails, a model on several GPUs emits
// wrong tokens.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/reference/transformer.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/known_sequence.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/models/row_invariance.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using testing::KnownSequence;
using testing::LoadedModel;
using testing::RandomParents;

class CudaTensorParallel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { checkpoint_ = std::make_unique<testing::RandomCheckpoint>("mistral"); }
  static void TearDownTestSuite() { checkpoint_.reset(); }

  void SetUp() override {
    const kernels::MadeBackend made = kernels::cuda::MakeBackend({.device = "cuda"});
    if (made.backend == nullptr) GTEST_SKIP() << made.error;
  }

  static LoadedModel Load(const std::string& directory, int num_ranks) {
    return testing::LoadModel(directory, {.num_ranks = num_ranks,
                                          .num_blocks = testing::kExactBlocks,
                                          .device = "cuda",
                                          .make_backend = kernels::cuda::MakeBackend,
                                          .transformer = {.max_rows = 96, .max_logit_rows = 96, .max_positions = 256}});
  }

  static inline std::unique_ptr<testing::RandomCheckpoint> checkpoint_;
};

class CudaTensorParallelOf : public CudaTensorParallel, public ::testing::WithParamInterface<int> {};

// Twice the tolerance of tests/common/model/tensor_parallel_test.cc: on a GPU q and the softmax's weights are rounded
// to bf16 too, so a layer has about twice as many roundings.
constexpr double kTolerance = 6e-2;

TEST_P(CudaTensorParallelOf, ReproducesTheReference) {
  const auto reference = reference::Transformer::Load(checkpoint_->directory(), reference::Rounding::kBf16);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::vector<int32_t> tokens = testing::RandomTokens(24, reference->config().vocab_size, 5);
  const std::vector<size_t> positions = {0, 1, 17, 23};
  const auto expected = reference->Logits(std::vector<int64_t>(tokens.begin(), tokens.end()), positions);
  LoadedModel model = Load(checkpoint_->directory(), GetParam());
  ASSERT_EQ(model.kv.ranks.size(), GetParam());
  const auto rows =
      testing::DecodeChain(model, {.tokens = tokens, .block_table = testing::Iota(0, 2), .chunks = {18, 5, 1}});
  for (size_t i = 0; i < positions.size(); ++i) {
    ASSERT_EQ(rows[positions[i]].size(), expected[i].size());
    for (size_t v = 0; v < expected[i].size(); ++v) {
      ASSERT_NEAR(rows[positions[i]][v], expected[i][v], kTolerance) << "position " << positions[i] << " token " << v;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaTensorParallelOf, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_F(CudaTensorParallel, IsRowInvariant) {
  for (const char* name : {"mistral-window", "mixtral"}) {
    LoadedModel model = Load(testing::SourcePath("tests/cases/models/") + name, 2);
    const KnownSequence known = DecodePlainly(model, {.num_tokens = 20, .parents = RandomParents(6, 1), .seed = 1});
    EXPECT_TRUE(CheckTree(model, known)) << name;
    EXPECT_TRUE(CheckMovedRows(model, known, testing::TreeSlots::kOverlapping)) << name;
  }
}

}  // namespace
}  // namespace foretoken::model
