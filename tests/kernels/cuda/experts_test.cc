// SPDX-License-Identifier: Apache-2.0
// As tests/kernels/experts_test.cc, on a device; and what a device alone does: it sorts the choices of rows itself, and
// multiplies all experts' rows in one kernel, in tiles of several heights.
#include "kernels/cuda/experts.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/choose_experts.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/expert_cases.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::RandomExperts;

class CudaExpertsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MadeBackend made = MakeBackend({.device = "cuda"});
    if (made.backend == nullptr) GTEST_SKIP() << made.error;
    backend_ = std::move(made.backend);
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CudaExpertsTest, MatchTheirDefinition) { testing::ExpectExpertsAsDefined(*backend_); }
TEST_F(CudaExpertsTest, MatchTheirDefinitionWithBiasesAndACutGate) {
  testing::ExpectExpertsWithBiasesAndACutGate(*backend_);
}
TEST_F(CudaExpertsTest, TieScoresGoToTheLowerExpert) { testing::ExpectTiesToTheLowerExpert(*backend_); }
TEST_F(CudaExpertsTest, ShowAScoreThatIsNoNumberInItsRowAlone) {
  testing::ExpectAScoreThatIsNoNumberInItsRowAlone(*backend_);
}

TEST_F(CudaExpertsTest, GiveARowTheSameBitsInEveryBatchAndFormat) {
  for (const Quantization& quantization :
       {Quantization(), Quantization(WeightQuantization::kFp8), Quantization(WeightQuantization::kInt8, 32),
        Quantization(WeightQuantization::kInt4, 64)}) {
    testing::ExpectRowsAsAlone(RandomExperts(*backend_, {}, [&](int32_t) { return quantization; }), 33);
  }
}

// A file may keep some of its experts in another format.
TEST_F(CudaExpertsTest, MayHaveUnlikeFormats) {
  const std::vector<Quantization> by_expert = {WeightQuantization::kNone, {WeightQuantization::kInt8, 32},
                                               WeightQuantization::kFp8,  {WeightQuantization::kInt4, 32},
                                               WeightQuantization::kNone, {WeightQuantization::kInt8, 64}};
  const RandomExperts mixed(*backend_, {}, [&](int32_t expert) { return by_expert[expert]; });
  testing::ExpectRowsAsAlone(mixed, 20);
  // A row of one expert has the bits that it has where all experts have that expert's format.
  for (int32_t expert = 0; expert < static_cast<int32_t>(by_expert.size()); ++expert) {
    const RandomExperts alike(*backend_, {}, [&](int32_t) { return by_expert[expert]; });
    std::vector<std::vector<float>> outs;
    for (const RandomExperts* experts : {&mixed, &alike}) {
      testing::ExpertRows row(experts->sizes(), 1);
      row.num_chosen = 1;
      row.scores.assign(row.sizes.N, 0);
      row.scores[expert] = 1;
      row.Run(*experts);
      outs.push_back(row.out);
    }
    EXPECT_EQ(outs[0], outs[1]) << expert;
  }
}

// The rows have 82 tiles of two panels, so a block computes all splits; a row alone has 6, and splits are spread.
TEST_F(CudaExpertsTest, HaveTheSameBitsHoweverSplitsAreSpread) {
  const testing::ExpertSizes sizes = {.E = 512, .F = 80, .N = 64};
  const ExpertTiles tiles = PlanExpertTiles(70, 3, sizes.N), alone = PlanExpertTiles(1, 3, sizes.N);
  ASSERT_EQ(tiles.max_tiles, 82);
  ASSERT_EQ(alone.max_tiles, 3);
  ASSERT_GT(NumericClassOf(2 * sizes.F, sizes.E).num_splits, 1);
  testing::ExpectRowsAsAlone(RandomExperts(*backend_, sizes), 70);
}

TEST(PlanExpertTiles, HasRoomForTheWorstChoice) {
  for (const int64_t num_rows : {1, 5, 64, 512}) {
    for (const int64_t num_experts : {4, 6, 128}) {
      for (const int64_t num_chosen : {1, 4}) {
        const ExpertTiles tiles = PlanExpertTiles(num_rows, num_chosen, num_experts);
        const int64_t num_choices = num_rows * num_chosen;
        // As many experts as possible have one row in their last tile.
        int64_t left = num_choices, num_tiles = 0;
        for (int64_t expert = 0; expert < num_experts && left > 0; ++expert, --left) ++num_tiles;
        num_tiles += left / tiles.max_rows;
        EXPECT_GE(tiles.max_tiles, num_tiles) << num_rows << " " << num_experts << " " << num_chosen;
        EXPECT_LE(tiles.max_tiles, num_choices);
      }
    }
  }
  EXPECT_EQ(PlanExpertTiles(1, 8, 128).max_rows, 8);
  EXPECT_EQ(PlanExpertTiles(512, 8, 128).max_rows, 32);
  EXPECT_EQ(PlanExpertTiles(4096, 8, 128).max_rows, 64);
}

}  // namespace
}  // namespace foretoken::kernels::cuda
