// SPDX-License-Identifier: Apache-2.0
#include "common/model/memory_need.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/runnable_model.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/loaded_model.h"
#include "tests/testing/random_checkpoint.h"

namespace foretoken::model {
namespace {

// Counts what is taken, weights apart from the rest.
class CountingBackend final : public testing::ForwardingBackend {
 public:
  struct Taken {
    size_t weight_elements = 0;  // of matrices, without a layout's padding
    size_t other_bytes = 0;
  };
  CountingBackend(std::unique_ptr<kernels::Backend> backend, Taken* taken)
      : ForwardingBackend(std::move(backend)), taken_(taken) {}

  kernels::Buffer Allocate(size_t num_bytes) override {
    taken_->other_bytes += num_bytes;
    return ForwardingBackend::Allocate(num_bytes);
  }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    std::unique_ptr<kernels::Weight> weight = ForwardingBackend::PrepareWeight(source);
    taken_->weight_elements += weight->out_features() * weight->in_features();
    return weight;
  }

 private:
  Taken* taken_;
};

class LargestRankNeedTest : public ::testing::TestWithParam<std::pair<const char*, int>> {};

// Vectors are part of the weights, and are allocated like the rest.
TEST_P(LargestRankNeedTest, IsWhatTheRanksTake) {
  const auto [name, num_ranks] = GetParam();
  const testing::RandomCheckpoint checkpoint(name);
  std::vector<CountingBackend::Taken> taken(num_ranks);
  size_t next_rank = 0;
  const testing::LoadOptions options = {
      .num_ranks = num_ranks, .wrap_backend = [&](std::unique_ptr<kernels::Backend> backend) {
        return std::make_unique<CountingBackend>(std::move(backend), &taken[next_rank++]);
      }};
  const testing::LoadedModel model = testing::LoadModel(checkpoint.directory(), options);
  const kernels::MemoryNeed need =
      LargestRankNeed(model.transformer->config(), num_ranks, options.transformer, options.num_blocks);
  const size_t needed = need.weight_bytes + need.kv_bytes + need.pass_bytes;
  for (const CountingBackend::Taken& rank : taken) EXPECT_GE(needed, 2 * rank.weight_elements + rank.other_bytes);
  // Rank 0 has the logits; another may have a row more of the embedding, and of the head.
  const size_t row_bytes = num_ranks == 1 ? 0 : 2 * 2 * model.transformer->config().hidden_size;
  EXPECT_LE(needed, 2 * taken[0].weight_elements + taken[0].other_bytes + row_bytes);
  EXPECT_EQ(need.kv_bytes, model.kv.ranks[0].view.num_bytes());
}

INSTANTIATE_TEST_SUITE_P(Models, LargestRankNeedTest,
                         ::testing::Values(std::pair("llama", 1), std::pair("llama_tied", 1), std::pair("qwen3", 1),
                                           std::pair("llama", 2), std::pair("qwen2", 4)));

}  // namespace
}  // namespace foretoken::model
