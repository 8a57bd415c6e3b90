// SPDX-License-Identifier: Apache-2.0
// The double-precision reference against transformers (tiny models) and against deploy/demo/reference.json. If this
// test fails, the other tests compare the served models with a wrong model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/reference/transformer.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/models/wrong_switches.h"
#include "tests/testing/paths.h"

namespace foretoken::reference {
namespace {

using nlohmann::json;
using testing::SourcePath;

json ReadJsonFile(const std::string& path) { return json::parse(base::ReadFile(path).value()); }

class TinyModelForward : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string directory_ = SourcePath("tests/cases/models/") + GetParam();
};

// transformers runs in float64, except for norms and rotary angles, which it computes in float32 (roundoff 6e-8, angles
// up to 100). This leaves 2e-5 of logits of size 1, and the file holds six decimals.
TEST_P(TinyModelForward, ReferenceReproducesTransformers) {
  const auto model = Transformer::Load(directory_, Rounding::kNone);
  ASSERT_TRUE(model.ok()) << model.status();
  const json cases = ReadJsonFile(directory_ + "/reference.json")["cases"];
  ASSERT_EQ(cases.size(), 4);
  double worst = 0;
  for (const json& reference : cases) {
    const auto logits = model->Logits(reference["token_ids"].get<std::vector<int64_t>>(),
                                      reference["positions"].get<std::vector<size_t>>());
    const auto expected = reference["logits"].get<std::vector<std::vector<double>>>();
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t row = 0; row < logits.size(); ++row) {
      ASSERT_EQ(logits[row].size(), expected[row].size());
      for (size_t v = 0; v < logits[row].size(); ++v)
        worst = std::max(worst, std::abs(logits[row][v] - expected[row][v]));
    }
  }
  RecordProperty("worst_error", std::to_string(worst));
  EXPECT_LT(worst, 2e-5);
}

TEST_P(TinyModelForward, ReferenceContinuesGreedilyAsTransformers) {
  const auto model = Transformer::Load(directory_, Rounding::kNone);
  ASSERT_TRUE(model.ok()) << model.status();
  const json reference = ReadJsonFile(directory_ + "/reference.json")["cases"][2];
  auto context = reference["token_ids"].get<std::vector<int64_t>>();
  for (const json& expected : reference["greedy_token_ids"]) {
    const auto logits = model->Logits(context, std::vector<size_t>{context.size() - 1})[0];
    context.push_back(std::ranges::max_element(logits) - logits.begin());
    ASSERT_EQ(context.back(), expected.get<int64_t>()) << "at position " << context.size() - 1;
  }
}

// A backend that rounds by contract is near the exact function, but not equal to it.
TEST_P(TinyModelForward, RoundingToBf16MovesLogitsALittle) {
  const auto exact = Transformer::Load(directory_, Rounding::kNone);
  const auto rounded = Transformer::Load(directory_, Rounding::kBf16);
  ASSERT_TRUE(exact.ok() && rounded.ok());
  const json reference = ReadJsonFile(directory_ + "/reference.json")["cases"][1];
  const auto token_ids = reference["token_ids"].get<std::vector<int64_t>>();
  const std::vector<size_t> last = {token_ids.size() - 1};
  const auto exact_row = exact->Logits(token_ids, last)[0];
  const auto rounded_row = rounded->Logits(token_ids, last)[0];
  double sum_of_squares = 0;
  for (size_t v = 0; v < exact_row.size(); ++v) sum_of_squares += std::pow(exact_row[v] - rounded_row[v], 2);
  const double root_mean_square = std::sqrt(sum_of_squares / static_cast<double>(exact_row.size()));
  EXPECT_GT(root_mean_square, 1e-4);
  EXPECT_LT(root_mean_square, 5e-2);
}

INSTANTIATE_TEST_SUITE_P(Reference, TinyModelForward, ::testing::ValuesIn(testing::kTinyModels), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

class Wrong : public ::testing::TestWithParam<testing::WrongSwitch> {};

// The comparison above would find each of these mistakes.
TEST_P(Wrong, MovesTheLogits) {
  const std::string directory = SourcePath("tests/cases/models/") + GetParam().model;
  const auto right = Transformer::Load(directory, Rounding::kNone);
  ASSERT_TRUE(right.ok()) << right.status();
  model::ModelConfig config = right->config();
  GetParam().spoil(config);
  ASSERT_NE(config, right->config());
  const auto token_ids =
      ReadJsonFile(directory + "/reference.json")["cases"][2]["token_ids"].get<std::vector<int64_t>>();
  const std::vector<size_t> last = {token_ids.size() - 1};
  const auto expected = right->Logits(token_ids, last)[0], logits = right->With(config).Logits(token_ids, last)[0];
  double worst = 0;
  for (size_t v = 0; v < expected.size(); ++v) worst = std::max(worst, std::abs(logits[v] - expected[v]));
  EXPECT_GT(worst, 1e-3);  // fifty times what the comparison allows
}

TEST(WrongExperts, MoveTheLogits) {
  for (const char* model : testing::kModelsWithExperts) {
    const auto right = Transformer::Load(SourcePath("tests/cases/models/") + model, Rounding::kNone);
    ASSERT_TRUE(right.ok()) << right.status();
    const std::vector<int64_t> token_ids = {5, 17, 200};
    const std::vector<size_t> last = {2};
    const auto expected = right->Logits(token_ids, last)[0];
    const auto logits = right->WithoutTheBestExpert().Logits(token_ids, last)[0];
    double worst = 0;
    for (size_t v = 0; v < expected.size(); ++v) worst = std::max(worst, std::abs(logits[v] - expected[v]));
    EXPECT_GT(worst, 1e-3) << model;
  }
}

INSTANTIATE_TEST_SUITE_P(Switch, Wrong, ::testing::ValuesIn(testing::kWrongSwitches),
                         [](const auto& info) { return info.param.name; });

// The file gives five decimals; both sides are float64.
TEST(DemoModel, ReferenceReproducesItsPublishedLogits) {
  const auto model = Transformer::Load(SourcePath("deploy/demo/target"), Rounding::kNone);
  ASSERT_TRUE(model.ok()) << model.status();
  const json cases = ReadJsonFile(SourcePath("deploy/demo/reference.json"))["cases"];
  ASSERT_EQ(cases.size(), 12);
  for (const json& reference : cases) {
    const auto token_ids = reference["token_ids"].get<std::vector<int64_t>>();
    const auto logits = model->Logits(token_ids, std::vector<size_t>{token_ids.size() - 1})[0];
    for (const json& entry : reference["next_token_top32"]) {
      EXPECT_NEAR(logits[entry[0].get<size_t>()], entry[1].get<double>(), 2e-5) << reference["text"];
    }
    EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), reference["greedy_token_ids"][0].get<int64_t>());
  }
}

}  // namespace
}  // namespace foretoken::reference
