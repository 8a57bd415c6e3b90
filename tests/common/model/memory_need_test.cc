// SPDX-License-Identifier: Apache-2.0
// The memory that a model needs. If this test fails, a server runs out of device memory while it serves, or refuses a
// model that fits.
#include "common/model/memory_need.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/runnable_model.h"
#include "kernels/make_backend.h"
#include "tests/testing/fakes/expert_keeping_backend.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/fakes/late_backend.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using kernels::WeightQuantization;

// Counts allocated bytes, weights apart from the rest.
class CountingBackend final : public testing::ForwardingBackend {
 public:
  struct Taken {
    size_t weight_bytes = 0;  // of matrices, without a layout's padding
    size_t other_bytes = 0;
    size_t widest_inputs = 0;  // the widest of fp8 weights
  };
  CountingBackend(std::unique_ptr<kernels::Backend> backend, WeightQuantization quantization, Taken* taken)
      : ForwardingBackend(std::move(backend)), quantization_(quantization), taken_(taken) {}

  kernels::Quantization weight_quantization() const override { return quantization_; }

  kernels::Buffer Allocate(size_t num_bytes) override {
    taken_->other_bytes += num_bytes;
    return ForwardingBackend::Allocate(num_bytes);
  }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    kernels::WeightSource plain = source;  // a CPU can only compute with this
    plain.quantization = WeightQuantization::kNone;
    std::unique_ptr<kernels::Weight> weight = ForwardingBackend::PrepareWeight(plain);
    const auto num_outputs = static_cast<size_t>(weight->out_features());
    const size_t num_elements = num_outputs * weight->in_features();
    const bool is_fp8 = source.quantization.weights == WeightQuantization::kFp8;
    if (is_fp8) taken_->widest_inputs = std::max<size_t>(taken_->widest_inputs, weight->in_features());
    taken_->weight_bytes += is_fp8 ? num_elements + num_outputs * sizeof(float) : 2 * num_elements;
    return weight;
  }

 private:
  const WeightQuantization quantization_;
  Taken* taken_;
};

struct NeedCase {
  const char* name;
  int num_ranks = 1;
  WeightQuantization quantization = WeightQuantization::kNone;
};

class LargestRankNeedTest : public ::testing::TestWithParam<NeedCase> {};

// Vectors belong to the weights, but are allocated like the rest.
TEST_P(LargestRankNeedTest, EqualsTheMemoryThatTheRanksTake) {
  const auto [name, num_ranks, quantization] = GetParam();
  const testing::RandomCheckpoint checkpoint(name);
  std::vector<CountingBackend::Taken> taken(num_ranks);
  size_t next_rank = 0;
  const testing::LoadOptions options = {
      .num_ranks = num_ranks, .wrap_backend = [&, quantization](std::unique_ptr<kernels::Backend> backend) {
        return std::make_unique<CountingBackend>(std::move(backend), quantization, &taken[next_rank++]);
      }};
  testing::LoadedModel model = testing::LoadModel(checkpoint.directory(), options);
  const kernels::MemoryNeed need =
      LargestRankNeed(model.transformer->config(), num_ranks, options.transformer, options.num_blocks, model.backend());
  const size_t needed = need.weight_bytes + need.kv_bytes + need.pass_bytes;
  const size_t quantized_row_bytes = taken[0].widest_inputs == 0 ? 0 : taken[0].widest_inputs + sizeof(float);
  const size_t product_bytes = options.transformer.max_rows * quantized_row_bytes;
  for (const CountingBackend::Taken& rank : taken) {
    EXPECT_GE(needed, rank.weight_bytes + rank.other_bytes + product_bytes);
  }
  // Rank 0 has the logits; another rank may have one more row of the embedding and of the head.
  const size_t row_bytes = num_ranks == 1 ? 0 : 2 * 2 * model.transformer->config().hidden_size;
  EXPECT_LE(needed, taken[0].weight_bytes + taken[0].other_bytes + product_bytes + row_bytes);
  EXPECT_EQ(need.kv_bytes, model.kv.ranks[0].view.num_bytes());
}

INSTANTIATE_TEST_SUITE_P(Models, LargestRankNeedTest,
                         ::testing::Values(NeedCase{"llama"}, NeedCase{"llama_tied"}, NeedCase{"qwen3"},
                                           NeedCase{"llama", 2}, NeedCase{"qwen2", 4}, NeedCase{"olmo2"},
                                           NeedCase{"olmo2", 4}, NeedCase{"llama", 1, WeightQuantization::kFp8},
                                           NeedCase{"llama_tied", 2, WeightQuantization::kFp8}));

std::unique_ptr<kernels::Backend> OneThread() { return kernels::MakeBackend({.num_threads = 1}).backend; }

TEST(LargestRankNeed, CountsExpertsUpToTheirBound) {
  const ModelConfig config = LoadModelConfig(testing::SourcePath("tests/cases/models/mixtral")).value();
  const auto backend = OneThread();
  const auto need = [&](std::optional<int64_t> max_expert_bytes) {
    return LargestRankNeed(config, 1, {}, 1, *backend, {.max_expert_bytes = max_expert_bytes}).weight_bytes;
  };
  const int64_t all = int64_t{2} * 4 * (3 * 64 * 96) * 2;  // layers, experts, weights, bytes
  EXPECT_EQ(need(std::nullopt) - need(0), all);
  EXPECT_EQ(need(1000) - need(0), 1000);
  EXPECT_EQ(need(all + 1), need(std::nullopt));
  // A bound that a device cannot keep does not make it need less.
  const testing::ExpertKeepingBackend keeping(OneThread());
  EXPECT_EQ(LargestRankNeed(config, 1, {}, 1, keeping, {.max_expert_bytes = 1000}).weight_bytes, need(std::nullopt));
}

// A device that keeps all experts gathers a row for all that it chose at the same time, and quantises what it gathered.
TEST(LargestRankNeed, CountsTheRowsThatAreGatheredForExperts) {
  const ModelConfig config = LoadModelConfig(testing::SourcePath("tests/cases/models/mixtral")).value();
  const auto row_bytes = [&](const kernels::Backend& backend) {
    const auto pass = [&](int32_t max_rows) {
      return LargestRankNeed(config, 1, {.max_rows = max_rows}, 1, backend).pass_bytes;
    };
    return pass(41) - pass(40);
  };
  const testing::ExpertKeepingBackend keeping(OneThread()), quantising(OneThread(), WeightQuantization::kFp8);
  const size_t gathered = 64 * (2 + 4) + 96 * (8 + 2);                // x and out, gate and up, and their product
  EXPECT_EQ(row_bytes(keeping) - row_bytes(*OneThread()), gathered);  // two experts in place of one
  EXPECT_EQ(row_bytes(quantising) - row_bytes(keeping), 2 * (96 + 4));
}

// An asynchronous backend copies the logits of rows with penalties, in groups of four, and K and V of rows that move.
TEST(LargestRankNeed, CountsWhatAStepCopiesAside) {
  ModelConfig config = LoadModelConfig(testing::SourcePath("tests/cases/models/mixtral")).value();
  config.vocab_size = 257;
  const auto plain = OneThread();
  const testing::LateBackend late(OneThread());
  const auto bytes = [&](const kernels::Backend& backend, int32_t max_rows, int32_t max_logit_rows) {
    return LargestRankNeed(config, 1, {.max_rows = max_rows, .max_logit_rows = max_logit_rows}, 1, backend).pass_bytes;
  };
  const size_t token_bytes = 2 * 2 * config.num_layers * config.num_kv_heads * config.head_dim;  // K and V in bf16
  EXPECT_EQ(bytes(late, 40, 8) - bytes(*plain, 40, 8), 8 * 260 * sizeof(float) + 40 * token_bytes);
}

// A sum that overflows would let a model start that no machine can hold.
TEST(LargestRankNeed, OfTheLargestConfigurationIsCountedWithoutOverflow) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4194304, "intermediate_size": 4194304,
    "num_hidden_layers": 4096, "num_attention_heads": 4096, "head_dim": 4096, "vocab_size": 1048576,
    "max_position_embeddings": 1073741824})",
                                                              "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const kernels::MemoryNeed need = LargestRankNeed(*config, 1, {}, /*num_blocks=*/1, *OneThread());
  const double matrices = 4 * 0x1p46 + 3 * 0x1p44;  // of a layer: q, k, v and o; gate, up and down
  EXPECT_NEAR(static_cast<double>(need.weight_bytes) / (2 * 4096 * matrices), 1, 1e-3);
}

}  // namespace
}  // namespace foretoken::model
