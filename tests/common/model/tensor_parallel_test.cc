// SPDX-License-Identifier: Apache-2.0
// One model shared by 1, 2 and 4 ranks: against the double-precision reference, and the part that each rank reads.
// tests/exact shows row invariance. If this test fails, a tensor-parallel server emits wrong tokens or loads too much.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/runnable_model.h"
#include "common/model/shard.h"
#include "common/parallel/rank_group.h"
#include "kernels/make_backend.h"
#include "tests/reference/transformer.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using testing::DecodeChain;
using testing::Iota;
using testing::LoadedModel;

// The tolerance of transformer_test.cc, 3e-2 for logits of size 1, holds for any number of ranks. R partial sums added
// in f32 round R - 1 times more, each by 6e-8 of a sum, and such roundoff only moves a bf16 input to its neighbour now
// and then. A wrong weight on a rank makes a difference of size 1.
constexpr double kParallelTolerance = 3e-2;

void ExpectTheReferenceAtEveryDegree(const std::string& directory, int max_ranks) {
  const auto reference = reference::Transformer::Load(directory, reference::Rounding::kBf16);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::vector<int32_t> tokens = testing::RandomTokens(70, reference->config().vocab_size, 5);
  const std::vector<size_t> positions = {0, 1, 33, 69};
  const auto expected = reference->Logits(std::vector<int64_t>(tokens.begin(), tokens.end()), positions);
  int num_degrees = 0;
  for (const int num_ranks : {1, 2, 4}) {
    if (!CheckTensorParallel(reference->config(), num_ranks).ok()) continue;
    ++num_degrees;
    LoadedModel model = testing::LoadModel(directory, {.num_ranks = num_ranks});
    const auto rows = DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 5), .chunks = {30, 7, 1}});
    for (size_t i = 0; i < positions.size(); ++i) {
      ASSERT_EQ(rows[positions[i]].size(), expected[i].size());
      for (size_t v = 0; v < expected[i].size(); ++v) {
        ASSERT_NEAR(rows[positions[i]][v], expected[i][v], kParallelTolerance)
            << num_ranks << " ranks, position " << positions[i] << " token " << v;
      }
    }
  }
  EXPECT_EQ(1 << (num_degrees - 1), max_ranks);
}

class TinyTensorParallel : public ::testing::TestWithParam<const char*> {};

std::string NameOf(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The tiny models have as many key/value heads as the most ranks that can share them.
TEST_P(TinyTensorParallel, ReproducesTheReferenceAtEveryDegree) {
  const std::string directory = testing::SourcePath("tests/cases/models/") + GetParam();
  ExpectTheReferenceAtEveryDegree(directory, static_cast<int>(LoadModelConfig(directory)->num_kv_heads));
}

INSTANTIATE_TEST_SUITE_P(Models, TinyTensorParallel, ::testing::ValuesIn(testing::kTinyModels), NameOf);

class RandomTensorParallel : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomTensorParallel, ReproducesTheReferenceAtEveryDegree) {
  const testing::RandomCheckpoint checkpoint(GetParam());
  ExpectTheReferenceAtEveryDegree(checkpoint.directory(), 4);
}

INSTANTIATE_TEST_SUITE_P(Models, RandomTensorParallel, ::testing::ValuesIn(testing::kRandomCheckpoints), NameOf);

TEST(TensorParallelWeights, EveryRankHoldsItsPartAndAllPartsAreReadOnce) {
  const testing::RandomCheckpoint files("llama");
  const ModelConfig config = LoadModelConfig(files.directory()).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(files.directory()).value();
  LoadedModel model = testing::LoadModel(files.directory(), {.num_ranks = 4});
  size_t num_bytes_read = 0;
  int64_t num_ids = 0;
  for (int32_t rank = 0; rank < 4; ++rank) {
    WeightReader reader({});
    const ModelWeights weights =
        LoadWeights(config, checkpoint, model.ranks->backend(rank), reader, {.rank = rank, .num_ranks = 4}).value();
    const size_t read = reader.times().num_bytes;
    EXPECT_LT(read, checkpoint.num_bytes() * 0.27);
    num_bytes_read += read;
    num_ids += weights.embed->out_features();
    EXPECT_EQ(weights.head->out_features(), weights.embed->out_features());
    for (const LayerWeights& layer : weights.layers) {
      EXPECT_EQ(layer.qkv->out_features(), (2 + 2 * 1) * 32);
      EXPECT_EQ(layer.qkv_bias.view().shape[0], (2 + 2 * 1) * 32);
      EXPECT_EQ(layer.o->in_features(), 2 * 32);
      EXPECT_EQ(layer.o_bias.empty(), rank != 0);
      EXPECT_EQ(layer.gate_up->out_features(), 2 * 90);
      EXPECT_EQ(layer.down->in_features(), 90);
    }
    EXPECT_EQ(model.kv.ranks[rank].view.num_kv_heads, 1);
  }
  EXPECT_EQ(num_bytes_read, checkpoint.num_bytes());
  EXPECT_EQ(num_ids, config.vocab_size);
}

TEST(TensorParallelLoading, ReportsOneProgressOfAllRanks) {
  OpenedModel opened =
      OpenModel({.directory = testing::SourcePath("deploy/demo/target"), .tensor_parallel = 2}).value();
  size_t last = 0, total = 0;
  const LoadProgress progress = [&](size_t done, size_t num_bytes) {
    EXPECT_GT(done, last);
    last = done;
    total = num_bytes;
  };
  const ContextPlan context = {.max_context_tokens = 64, .num_blocks = 4};
  const RunnableModel model = LoadModel(std::move(opened), {.max_rows = 8, .context = context}, progress).value();
  EXPECT_EQ(last, total);
  EXPECT_EQ(model.kv.ranks.size(), 2);
}

class SumCountingBackend final : public testing::ForwardingBackend {
 public:
  SumCountingBackend(std::unique_ptr<kernels::Backend> backend, int* num_waits)
      : ForwardingBackend(std::move(backend)), num_waits_(num_waits) {}

  void Synchronize() override {
    ++*num_waits_;
    backend().Synchronize();
  }

 private:
  int* num_waits_;
};

// Only its own rank learns of a failed device, and only when it waits.
TEST(TensorParallelTransformer, WaitsForTheDeviceOfEveryRank) {
  OpenedModel opened = OpenModel({.directory = testing::SourcePath("deploy/demo/target")}).value();
  std::vector<int> num_waits(2);
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  for (int rank = 0; rank < 2; ++rank) {
    kernels::MadeBackend made = kernels::MakeBackend({.num_threads = 2, .rank = rank, .num_ranks = 2});
    backends.push_back(std::make_unique<SumCountingBackend>(std::move(made.backend), &num_waits[rank]));
  }
  opened.ranks = parallel::RankGroup::Make("cpu", std::move(backends)).value();
  const ContextPlan context = {.max_context_tokens = 64, .num_blocks = 4};
  const RunnableModel model = LoadModel(std::move(opened), {.max_rows = 8, .context = context}, nullptr).value();
  num_waits = {0, 0};
  model.transformer->Synchronize();
  EXPECT_EQ(num_waits, (std::vector<int>{1, 1}));
}

TEST(TensorParallelLoading, RefusesADegreeThatDoesNotDivideTheHeads) {
  const auto opened = OpenModel({.directory = testing::SourcePath("deploy/demo/target"), .tensor_parallel = 3});
  EXPECT_EQ(opened.status().message(),
            "--tensor_parallel: expected a divisor of the model's num_attention_heads 4, got 3");
}

}  // namespace
}  // namespace foretoken::model
