// SPDX-License-Identifier: Apache-2.0
// The transformer that serves: its function against the double-precision reference, and row invariance (E1) bit for
// bit.
#include "common/model/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/reference/transformer.h"
#include "tests/testing/loaded_model.h"
#include "tests/testing/paths.h"
#include "tests/testing/tiny_models.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using testing::LoadedModel;
using testing::LoadModel;
using testing::SourcePath;

json ReadJson(const std::string& path) { return json::parse(base::ReadFile(path).value()); }

std::vector<int32_t> Iota(int32_t first, int32_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<float> Row(const kernels::ConstTensorView& logits, int64_t row) {
  const float* begin = logits.as<float>() + row * logits.shape[1];
  return {begin, begin + logits.shape[1]};
}

// Logits of every token of one sequence, its prompt cut into chunks of these sizes (the last one repeats).
std::vector<std::vector<float>> LogitsOfChunks(LoadedModel& model, std::span<const int32_t> tokens,
                                               const std::vector<int32_t>& chunk_sizes,
                                               const std::vector<int32_t>& block_table) {
  std::vector<std::vector<float>> rows;
  for (size_t i = 0; rows.size() < tokens.size(); ++i) {
    const auto first = static_cast<int32_t>(rows.size());
    const int32_t size = std::min<int32_t>(chunk_sizes[std::min(i, chunk_sizes.size() - 1)],
                                           static_cast<int32_t>(tokens.size()) - first);
    ForwardBatch batch;
    AppendSegment({.block_table = block_table, .first_position = first, .chain = tokens.subspan(first, size)}, &batch);
    batch.logit_rows = Iota(0, size);
    const kernels::ConstTensorView logits = model.transformer->Forward(batch, model.kv.view);
    for (int32_t row = 0; row < size; ++row) rows.push_back(Row(logits, row));
  }
  return rows;
}

std::vector<int32_t> RandomTokens(int32_t count, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  return tokens;
}

class TinyTransformer : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string directory_ = SourcePath("tests/cases/models/") + GetParam();
};

// The reference rounds where the backend does by contract (matrices, inputs of products, K and V); what is left is f32
// roundoff (6e-8 times the reduction lengths, below 1e-5) and the bf16 inputs that it tips over to a neighbour (4e-3 of
// one input among 64 and more, a few times per row). Logits of these models have size 1.
TEST_P(TinyTransformer, ReproducesTheReferenceOnEveryIsa) {
  const auto reference = reference::Transformer::Load(directory_, reference::Rounding::kBf16);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const std::string& isa : kernels::SupportedCpuIsas()) {
    SCOPED_TRACE(isa);
    LoadedModel model = LoadModel(directory_, {.isa = isa});
    const json file = ReadJson(directory_ + "/reference.json");
    for (const json& reference_case : file["cases"]) {
      const auto tokens = reference_case["token_ids"].get<std::vector<int32_t>>();
      const auto positions = reference_case["positions"].get<std::vector<size_t>>();
      const auto rows = LogitsOfChunks(model, tokens, {static_cast<int32_t>(tokens.size())}, Iota(0, 16));
      const auto expected = reference->Logits(std::vector<int64_t>(tokens.begin(), tokens.end()), positions);
      for (size_t i = 0; i < positions.size(); ++i) {
        for (size_t v = 0; v < expected[i].size(); ++v) {
          ASSERT_NEAR(rows[positions[i]][v], expected[i][v], 3e-2) << "position " << positions[i] << " token " << v;
        }
      }
    }
  }
}

TEST_P(TinyTransformer, LogitsDoNotDependOnChunksBlocksOrThreads) {
  LoadedModel model = LoadModel(directory_);
  const std::vector<int32_t> tokens = RandomTokens(150, model.transformer->config().vocab_size, 1);
  const auto expected = LogitsOfChunks(model, tokens, {150}, Iota(0, 16));
  std::vector<int32_t> shuffled = Iota(16, 32);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(2));
  EXPECT_EQ(LogitsOfChunks(model, tokens, {1}, Iota(0, 16)), expected);
  EXPECT_EQ(LogitsOfChunks(model, tokens, {7, 1, 16, 33}, shuffled), expected);
  LoadedModel single = LoadModel(directory_, {.num_threads = 1});
  EXPECT_EQ(LogitsOfChunks(single, tokens, {64}, Iota(0, 16)), expected);
}

// A random tree below a prefix, with another sequence's rows in the same batch: every node's row must equal that of the
// same tokens as a plain chain.
TEST_P(TinyTransformer, ATreeRowEqualsItsPathAsAChain) {
  LoadedModel model = LoadModel(directory_);
  const int64_t vocab_size = model.transformer->config().vocab_size;
  std::mt19937 random(3);
  for (const int32_t prefix_len : {1, 15, 16, 17, 40, 63, 64, 101}) {
    SCOPED_TRACE(prefix_len);
    const std::vector<int32_t> prefix = RandomTokens(prefix_len, vocab_size, 4);
    const std::vector<int32_t> neighbour = RandomTokens(37, vocab_size, 5);
    LogitsOfChunks(model, std::span(prefix).first(static_cast<size_t>(prefix_len) - 1), {100}, Iota(0, 8));
    const std::vector<int32_t> node_tokens = RandomTokens(24, vocab_size, 6);
    std::vector<int32_t> parents;
    for (int32_t node = 0; node < 24; ++node) parents.push_back(static_cast<int32_t>(random() % (node + 1)) - 1);

    ForwardBatch batch;
    const std::vector<int32_t> neighbour_blocks = Iota(20, 4);
    AppendSegment({.block_table = neighbour_blocks, .chain = neighbour}, &batch);
    const std::vector<int32_t> blocks = Iota(0, 8);
    const int32_t root_row = AppendSegment({.block_table = blocks,
                                            .first_position = prefix_len - 1,
                                            .chain = std::span(prefix).last(1),
                                            .tree_token_ids = node_tokens,
                                            .tree_parents = parents,
                                            .tree_slots = Iota(40 * kernels::kKvBlockSize + 3, 24)},
                                           &batch);
    batch.logit_rows = Iota(root_row, 25);
    const kernels::ConstTensorView logits = model.transformer->Forward(batch, model.kv.view);
    std::vector<std::vector<float>> tree_rows;
    for (int32_t row = 0; row < 25; ++row) tree_rows.push_back(Row(logits, row));

    for (int32_t node = -1; node < 24; ++node) {
      std::vector<int32_t> chain;
      for (int32_t above = node; above >= 0; above = parents[above]) chain.insert(chain.begin(), node_tokens[above]);
      chain.insert(chain.begin(), prefix.begin(), prefix.end());
      ASSERT_EQ(LogitsOfChunks(model, chain, {13}, Iota(24, 16)).back(), tree_rows[node + 1]) << "node " << node;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TinyTransformer, ::testing::ValuesIn(testing::kTinyModels), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The demo model's own tolerance for bf16 activations, from its README: 6e-2.
TEST(DemoTransformer, ReproducesTheIndependentReference) {
  LoadedModel model = LoadModel(SourcePath("deploy/demo/target"));
  const json file = ReadJson(SourcePath("deploy/demo/reference.json"));
  for (const json& reference_case : file["cases"]) {
    const auto tokens = reference_case["token_ids"].get<std::vector<int32_t>>();
    std::vector<float> row = LogitsOfChunks(model, tokens, {512}, Iota(0, 64)).back();
    for (const json& entry : reference_case["next_token_top32"]) {
      EXPECT_NEAR(row[entry[0].get<int32_t>()], entry[1].get<double>(), 6e-2);
    }
    std::vector<int32_t> context = tokens;
    const auto greedy = reference_case["greedy_token_ids"].get<std::vector<int32_t>>();
    const auto margins = reference_case["greedy_margins"].get<std::vector<double>>();
    for (size_t i = 0; i < greedy.size() && margins[i] > 6e-2; ++i) {
      row = LogitsOfChunks(model, context, {512}, Iota(0, 64)).back();
      ASSERT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), greedy[i]);
      context.push_back(greedy[i]);
    }
  }
}

}  // namespace
}  // namespace foretoken::model
