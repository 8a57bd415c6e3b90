// SPDX-License-Identifier: Apache-2.0
// The served transformer against the double-precision reference and, for the demo model, an independent one.
// tests/exact shows row invariance. If this test fails, a server emits wrong tokens.
#include "common/model/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/reference/transformer.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/models/wrong_switches.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using testing::DecodeChain;
using testing::Iota;
using testing::LoadedModel;
using testing::LoadModel;
using testing::SourcePath;

json ReadJson(const std::string& path) { return json::parse(base::ReadFile(path).value()); }

constexpr double kTolerance = 3e-2;

// Runs the cases of a tiny model's reference.json. Returns the largest difference between the served logits and those
// of `reference`.
double WorstDifference(const std::string& directory, const reference::Transformer& reference, const std::string& isa) {
  LoadedModel model = LoadModel(directory, {.isa = isa});
  const json file = ReadJson(directory + "/reference.json");
  double worst = 0;
  for (const json& reference_case : file["cases"]) {
    const auto tokens = reference_case["token_ids"].get<std::vector<int32_t>>();
    const auto positions = reference_case["positions"].get<std::vector<size_t>>();
    const auto rows = DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {512}});
    const auto expected = reference.Logits(std::vector<int64_t>(tokens.begin(), tokens.end()), positions);
    for (size_t i = 0; i < positions.size(); ++i) {
      for (size_t v = 0; v < expected[i].size(); ++v) {
        const double difference = std::abs(rows[positions[i]][v] - expected[i][v]);
        worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
      }
    }
  }
  return worst;
}

class TinyTransformer : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string directory_ = SourcePath("tests/cases/models/") + GetParam();
};

// The reference rounds where the backend rounds by contract (matrices, inputs of products, K and V). Two differences
// are left: f32 roundoff (6e-8 times the reduction lengths, below 1e-5), and bf16 inputs that this roundoff moves to a
// neighbour (4e-3 of one input among 64 and more, a few times per row). Logits of these models have size 1.
TEST_P(TinyTransformer, ReproducesTheReferenceOnEveryIsa) {
  const auto reference = reference::Transformer::Load(directory_, reference::Rounding::kBf16);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const std::string& isa : kernels::SupportedCpuIsas()) {
    SCOPED_TRACE(isa);
    EXPECT_LT(WorstDifference(directory_, *reference, isa), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TinyTransformer, ::testing::ValuesIn(testing::kTinyModels), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The comparison finds each of these mistakes.
class WrongReference : public ::testing::TestWithParam<testing::WrongSwitch> {};

TEST_P(WrongReference, IsOutsideTheTolerance) {
  const std::string directory = SourcePath("tests/cases/models/") + GetParam().model;
  const auto right = reference::Transformer::Load(directory, reference::Rounding::kBf16);
  ASSERT_TRUE(right.ok()) << right.status();
  ModelConfig config = right->config();
  GetParam().spoil(config);
  EXPECT_GT(WorstDifference(directory, right->With(config), "auto"), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Switch, WrongReference, ::testing::ValuesIn(testing::kWrongSwitches),
                         [](const auto& info) { return info.param.name; });

TEST(ReferenceWithoutTheBestExpert, IsOutsideTheTolerance) {
  for (const char* model : testing::kModelsWithExperts) {
    const std::string directory = SourcePath("tests/cases/models/") + model;
    const auto right = reference::Transformer::Load(directory, reference::Rounding::kBf16);
    ASSERT_TRUE(right.ok()) << right.status();
    EXPECT_GT(WorstDifference(directory, right->WithoutTheBestExpert(), "auto"), kTolerance) << model;
  }
}

testing::Row LastRow(LoadedModel& model, std::span<const int32_t> tokens) {
  return DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 64), .chunks = {512}}).back();
}

// The demo model's own tolerance for bf16 activations, from its README: 6e-2.
TEST(DemoTransformer, ReproducesTheIndependentReference) {
  LoadedModel model = LoadModel(SourcePath("deploy/demo/target"));
  const json file = ReadJson(SourcePath("deploy/demo/reference.json"));
  for (const json& reference_case : file["cases"]) {
    const auto tokens = reference_case["token_ids"].get<std::vector<int32_t>>();
    std::vector<float> row = LastRow(model, tokens);
    for (const json& entry : reference_case["next_token_top32"]) {
      EXPECT_NEAR(row[entry[0].get<int32_t>()], entry[1].get<double>(), 6e-2);
    }
    std::vector<int32_t> context = tokens;
    const auto greedy = reference_case["greedy_token_ids"].get<std::vector<int32_t>>();
    const auto margins = reference_case["greedy_margins"].get<std::vector<double>>();
    for (size_t i = 0; i < greedy.size() && margins[i] > 6e-2; ++i) {
      row = LastRow(model, context);
      ASSERT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), greedy[i]);
      context.push_back(greedy[i]);
    }
  }
}

}  // namespace
}  // namespace foretoken::model
