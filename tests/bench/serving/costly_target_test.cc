// SPDX-License-Identifier: Apache-2.0
// If these tests fail, serving_bench measures a target with other outputs or another cost, and its numbers mean
// nothing.
#include "tests/bench/serving/costly_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/model/config/config.h"
#include "common/weights/checkpoint.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::bench {
namespace {

const std::string kSource = testing::SourcePath("deploy/demo/target");
constexpr int64_t kNumBytes = 40'000'000;  // the demo target has 14.7 MB

class WriteCostlyTargetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status status =
        WriteCostlyTarget({.source = kSource, .directory = directory_.path(), .num_bytes = kNumBytes});
    ASSERT_TRUE(status.ok()) << status;
  }

  const testing::TempDir directory_;
};

// Greedy tokens and their logit rows.
struct Decoded {
  std::vector<int32_t> token_ids;
  std::vector<testing::Row> rows;
};

Decoded DecodeGreedily(const std::string& directory, const std::string& isa) {
  testing::LoadedModel model = testing::LoadModel(directory, {.isa = isa});
  Decoded decoded;
  std::vector<int32_t> tokens = {5, 300, 1200};
  for (int i = 0; i < 40; ++i) {
    const auto rows = testing::DecodeChain(
        model, {.tokens = tokens, .block_table = testing::Iota(0, 8), .chunks = {static_cast<int32_t>(tokens.size())}});
    decoded.rows.push_back(rows.back());
    tokens.push_back(static_cast<int32_t>(std::ranges::max_element(rows.back()) - rows.back().begin()));
  }
  decoded.token_ids = tokens;
  return decoded;
}

TEST_F(WriteCostlyTargetTest, HasAsManyBytesAsAskedForAndNoUnitMore) {
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory_.path()).value();
  EXPECT_GE(checkpoint.num_bytes(), kNumBytes);
  EXPECT_LT(checkpoint.num_bytes(), kNumBytes + 64 * 3 * 256 * 2 * 8);  // columns x matrices x hidden x bytes x layers
  EXPECT_GT(model::LoadModelConfig(directory_.path()).value().intermediate_size, 768);
}

// The new columns come last, and every sum is one chain in the order of its inputs (matmul_kernel.h). So each old sum
// is followed by additions of zero times a finite number, and no bit changes.
TEST_F(WriteCostlyTargetTest, SaysWhatItsSourceSaysBitForBit) {
  for (const char* isa : {"auto", "avx2"}) {
    const Decoded source = DecodeGreedily(kSource, isa);
    const Decoded costly = DecodeGreedily(directory_.path(), isa);
    EXPECT_EQ(costly.token_ids, source.token_ids) << isa;
    EXPECT_TRUE(testing::SameBits(costly.rows, source.rows)) << isa;
  }
}

// If the new gate and up rows were zero, kernels and caches could be faster than with real rows.
TEST_F(WriteCostlyTargetTest, FillsGateAndUpWithNumbersThatAllDiffer) {
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory_.path()).value();
  const int64_t width = model::LoadModelConfig(directory_.path()).value().intermediate_size;
  for (const char* name : {"model.layers.0.mlp.gate_proj.weight", "model.layers.7.mlp.up_proj.weight"}) {
    const auto view = checkpoint.Find(name, kernels::Shape(width, 256)).value();
    const std::span<const uint16_t> added(view.as<uint16_t>() + 768 * 256, (width - 768) * 256);
    EXPECT_EQ(std::ranges::count(added, 0), 0) << name;
    EXPECT_FALSE(std::ranges::equal(added.first(256), added.subspan(256, 256))) << name;
  }
}

TEST(WriteCostlyTarget, SaysTheSameWithExpertsThatCostSomethingAndAddNothing) {
  const testing::TempDir directory;
  ASSERT_TRUE(
      WriteCostlyTarget({.source = kSource, .directory = directory.path(), .num_bytes = kNumBytes, .num_experts = 12})
          .ok());
  const model::ModelConfig config = model::LoadModelConfig(directory.path()).value();
  EXPECT_EQ(config.experts.num_experts, 12);
  EXPECT_EQ(config.experts.num_chosen, 8);
  EXPECT_GE(config.experts.intermediate_size, 768);
  const Decoded source = DecodeGreedily(kSource, "auto"), costly = DecodeGreedily(directory.path(), "auto");
  EXPECT_EQ(costly.token_ids, source.token_ids);
  EXPECT_TRUE(testing::SameBits(costly.rows, source.rows));
}

TEST(WriteCostlyTarget, RefusesACheckpointItCannotWiden) {
  const testing::TempDir directory;
  EXPECT_EQ(WriteCostlyTarget({.source = directory.path(), .directory = directory.path(), .num_bytes = 1}).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace foretoken::bench
