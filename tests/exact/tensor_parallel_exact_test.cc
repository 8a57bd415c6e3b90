// SPDX-License-Identifier: Apache-2.0
// Row invariance (E1) at every tensor-parallel degree, with any number of threads per rank: no row depends on the rows
// beside it. Degrees differ from each other in the order of sums, so each degree is compared with itself. If a test
// fails, a client's tokens depend on the load of a tensor-parallel server.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/testing/fakes/variant_backend.h"
#include "tests/testing/models/known_sequence.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/models/row_invariance.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {
namespace {

constexpr int32_t kNumParallelTokens = 100;

bool IsIn(std::span<const char* const> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool IsRandom(const std::string& name) { return IsIn(kRandomCheckpoints, name) || IsIn(kRandomFamilies, name); }

// The families that are not in kRandomCheckpoints. Most of them are tiny models, which two ranks can share.
std::vector<const char*> OtherFamilies() {
  std::vector<const char*> names;
  std::ranges::copy_if(kFamilyModels, std::back_inserter(names),
                       [](const char* name) { return !IsIn(kRandomCheckpoints, name); });
  return names;
}

class TensorParallelInvariance : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  LoadedModel Load(int threads_per_rank = 1) const {
    const auto [name, num_ranks] = GetParam();
    if (IsRandom(name) && !checkpoint_) checkpoint_.emplace(name);
    return LoadModel(checkpoint_ ? checkpoint_->directory() : SourcePath("tests/cases/models/") + name,
                     {.num_threads = threads_per_rank * num_ranks, .num_ranks = num_ranks, .num_blocks = kExactBlocks});
  }

  mutable std::optional<RandomCheckpoint> checkpoint_;
};

class TensorParallelInvarianceLong : public TensorParallelInvariance {};

const auto kModelsAndDegrees = ::testing::Combine(::testing::ValuesIn(kRandomCheckpoints), ::testing::Values(2, 4));

std::string NameOfDegree(const ::testing::TestParamInfo<std::tuple<const char*, int>>& info) {
  std::string name = std::get<0>(info.param) + ("_on_" + std::to_string(std::get<1>(info.param)));
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallelInvariance, kModelsAndDegrees, NameOfDegree);
INSTANTIATE_TEST_SUITE_P(Models, TensorParallelInvarianceLong, kModelsAndDegrees, NameOfDegree);
INSTANTIATE_TEST_SUITE_P(Families, TensorParallelInvariance,
                         ::testing::Combine(::testing::ValuesIn(OtherFamilies()), ::testing::Values(2)), NameOfDegree);
INSTANTIATE_TEST_SUITE_P(RandomFamilies, TensorParallelInvariance,
                         ::testing::Combine(::testing::ValuesIn(kRandomFamilies), ::testing::Values(4)), NameOfDegree);

TEST_P(TensorParallelInvarianceLong, HoldsInBatchesOf1To64Sequences) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckBatchSizes(model, Iota(1, 64)));
}

TEST_P(TensorParallelInvariance, HoldsForPromptChunks) {
  LoadedModel model = Load();
  const KnownSequence known = DecodePlainly(model, {.num_tokens = kNumParallelTokens});
  EXPECT_TRUE(CheckChunkSizes(model, known, std::vector<int32_t>{3, 16, 65}));
}

TEST_P(TensorParallelInvariance, HoldsForTreesAndMovedRows) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckRandomTrees(model, std::vector<int32_t>{1, 40}, 24));
  const KnownSequence known = DecodePlainly(model, {.num_tokens = kNumParallelTokens});
  EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kApart));
  EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kOverlapping));
}

TEST_P(TensorParallelInvariance, HoldsForMixedBatchesAndThreads) {
  LoadedModel single = Load();
  std::vector<KnownSequence> known;
  for (const uint32_t seed : {1, 2, 3}) {
    known.push_back(DecodePlainly(
        single,
        {.num_tokens = 20 + 20 * static_cast<int32_t>(seed), .parents = RandomParents(12, seed), .seed = seed}));
  }
  EXPECT_TRUE(CheckMixedBatches(single, known, 5));
  LoadedModel threaded = Load(/*threads_per_rank=*/2);
  EXPECT_TRUE(CheckMixedBatches(threaded, known, 5));
}

// The control: the same checks on the same model, with sums over ranks whose order depends on the batch.
TEST(TensorParallelInvarianceControl, ASumOfRanksWhoseOrderFollowsTheBatchIsDetected) {
  const RandomCheckpoint checkpoint("llama");
  LoadedModel model = LoadModel(checkpoint.directory(), {.num_threads = 4,
                                                         .num_ranks = 4,
                                                         .num_blocks = kExactBlocks,
                                                         .device = "cpu",
                                                         .wrap_backend = WithVariant(Variant::kSumRanksBackwards)});
  const KnownSequence known = DecodePlainly(model, {.num_tokens = kNumParallelTokens});
  EXPECT_FALSE(CheckChunkSizes(model, known, std::vector<int32_t>{3, 16, 65}));
  EXPECT_FALSE(CheckRandomTrees(model, std::vector<int32_t>{1, 40}, 24));
}

}  // namespace
}  // namespace foretoken::testing
