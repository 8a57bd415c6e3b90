// SPDX-License-Identifier: Apache-2.0
// Experts as newer writers store them: one tensor of all experts' gates and ups, and one of their downs. If this test
// fails, such a checkpoint is refused, or computes something else than the one with a tensor for each matrix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/base/mapped_file.h"
#include "common/model/checkpoint_fit.h"
#include "common/model/expert_plan.h"
#include "common/model/weight_names.h"
#include "nlohmann/json.hpp"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

using nlohmann::json;

std::string DirectoryOf(const std::string& model) { return testing::SourcePath("tests/cases/models/") + model; }

// The same model with stacked experts, under the names of transformers 5.
class StackedTwin {
 public:
  explicit StackedTwin(const std::string& model) {
    const std::string from = DirectoryOf(model);
    const weights::Checkpoint checkpoint = weights::Checkpoint::Open(from).value();
    dir_.Write("config.json", base::ReadFile(from + "/config.json").value());
    const ModelWeightNames names = NameWeights(LoadModelConfig(from).value());
    for (size_t layer = 0; layer < names.layers.size(); ++layer) {
      const std::vector<ExpertWeightNames>& experts = names.layers[layer].experts;
      if (experts.empty()) continue;
      std::string gate_ups, downs;
      for (const ExpertWeightNames& expert : experts) {
        for (const WeightName& part : expert.gate_up) gate_ups += Take(checkpoint, part.name);
        downs += Take(checkpoint, expert.down.name);
      }
      const int64_t num_experts = std::ssize(experts);
      const kernels::Shape& in = experts[0].gate_up[0].shape;
      const std::string place = "model.layers." + std::to_string(layer) + ".mlp.experts.";
      Add(place + "gate_up_proj", {num_experts, 2 * in[0], in[1]}, gate_ups);
      Add(place + "down_proj", {num_experts, in[1], in[0]}, downs);
    }
    for (const std::string& name : checkpoint.Names()) {
      if (taken_.contains(name)) continue;
      const weights::StoredTensor& tensor = *checkpoint.FindStored(name);
      Add(absl::StrReplaceAll(name, {{"block_sparse_moe", "mlp"}}), tensor.shape, Take(checkpoint, name), tensor.dtype);
    }
    dir_.Write("model.safetensors", testing::SafetensorsBytes(header_.dump(), 0) + data_);
  }

  const std::string& directory() const { return dir_.path(); }

 private:
  std::string Take(const weights::Checkpoint& checkpoint, const std::string& name) {
    taken_.insert(name);
    const std::span<const std::byte> bytes = checkpoint.FindStored(name)->bytes;
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void Add(const std::string& name, const std::vector<int64_t>& shape, const std::string& bytes,
           const std::string& dtype = "BF16") {
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }

  testing::TempDir dir_;
  std::set<std::string> taken_;
  json header_;
  std::string data_;
};

struct StackedMode {
  const char* model;
  int num_ranks = 1;
  const char* weights = "none";
};

class StackedExperts : public ::testing::TestWithParam<StackedMode> {};

TEST_P(StackedExperts, GiveTheBitsOfSingleMatrices) {
  const StackedTwin twin(GetParam().model);
  const testing::LoadOptions options = {
      .num_ranks = GetParam().num_ranks, .quantization = {.weights = GetParam().weights}, .device = "cpu"};
  testing::LoadedModel single = testing::LoadModel(DirectoryOf(GetParam().model), options);
  testing::LoadedModel stacked = testing::LoadModel(twin.directory(), options);
  const std::vector<int32_t> tokens = testing::RandomTokens(40, single.transformer->config().vocab_size, 1);
  const std::vector<int32_t> blocks = testing::Iota(0, 4);
  const testing::ChainRun run = {.tokens = tokens, .block_table = blocks, .chunks = {30, 1}};
  EXPECT_TRUE(testing::SameBits(testing::DecodeChain(stacked, run), testing::DecodeChain(single, run)));
}

INSTANTIATE_TEST_SUITE_P(Models, StackedExperts,
                         ::testing::Values(StackedMode{"qwen3-moe"}, StackedMode{"qwen3-moe", 2},
                                           StackedMode{"qwen3-moe-mixed"}, StackedMode{"glm4-moe"},
                                           StackedMode{"mixtral"}, StackedMode{"mixtral", 1, "int4"}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.model) + "_" + info.param.weights + "_" +
                                              std::to_string(info.param.num_ranks);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(StackedExpertsWithABound, FitTheirConfigurationAndArePackedOneByOne) {
  const StackedTwin twin("glm4-moe");
  ModelConfig config = LoadModelConfig(twin.directory()).value();
  const auto checkpoint =
      std::make_shared<const weights::Checkpoint>(weights::Checkpoint::Open(twin.directory()).value());
  const quantization::OpenedWeights opened(checkpoint);
  EXPECT_THAT(FitToCheckpoint(opened, config).value(), ::testing::IsEmpty());
  EXPECT_EQ(CountParameters(config), CountParameters(LoadModelConfig(DirectoryOf("glm4-moe")).value()));
  const auto ranks = testing::MakeRanks({.num_threads = 1, .device = "cpu"});
  const ExpertSource source = {.config = config, .opened = opened, .ranks = ranks.get()};
  const ExpertPlan plan = PlanExperts(source, 100'000).value();
  ASSERT_FALSE(plan.keeps_all());
  EXPECT_NE(MakeExpertStore(source, plan, 0)->Get(1, 3).gate_up, nullptr);
}

}  // namespace
}  // namespace foretoken::model
