// SPDX-License-Identifier: Apache-2.0
// Features against an independent reference, and equal bits however the positions were computed. If this test fails,
// drafters that read the target's hidden states guess badly, or differently from run to run.
#include "common/model/feature_plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/weights/checkpoint.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using kernels::DType;
using kernels::FloatFromBf16;
using kernels::Shape;
using nlohmann::json;
using speculation::FeatureProjection;
using speculation::TargetFeatures;
using testing::LoadedModel;
using testing::SourcePath;

constexpr int32_t kHidden = 256;  // of the demo target
using Norm = FeatureProjection::Norm;

// What the demo's EAGLE-3 head reads.
TargetFeatures Eagle3Features() {
  const auto head = weights::Checkpoint::Open(SourcePath("deploy/demo/eagle3")).value();
  const kernels::ConstTensorView fc = head.Find("fc.weight", Shape(kHidden, 3 * kHidden)).value();
  FeatureProjection projection = {.num_outputs = kHidden};
  projection.weight.assign(fc.as<uint16_t>(), fc.as<uint16_t>() + fc.shape.num_elements());
  return {.layers = {2, 4, 5}, .target_hidden_size = kHidden, .projection = std::move(projection)};
}

// One layer, projected by the identity.
TargetFeatures OneLayer(int32_t k, Norm norm, std::vector<float> gains) {
  FeatureProjection projection = {.num_outputs = kHidden, .norm = norm, .gains = std::move(gains), .eps = 1e-5f};
  projection.weight.assign(size_t{kHidden} * kHidden, 0);
  for (size_t i = 0; i < kHidden; ++i) projection.weight[i * kHidden + i] = kernels::Bf16FromFloat(1);
  return {.layers = {k}, .target_hidden_size = kHidden, .projection = std::move(projection)};
}

class FeaturePlaneTest : public ::testing::Test {
 protected:
  void MakePlane(const TargetFeatures& features) {
    plane_ = std::make_unique<FeaturePlane>(features, *model_.transformer, model_.kv.num_blocks);
    while (!plane_->Prepare()) continue;
    model_.transformer->Capture(plane_->layers());
  }

  // Computes a chain in chunks and stores the features of all its rows.
  void Compute(std::span<const int32_t> tokens, int32_t chunk) {
    for (int32_t begin = 0; begin < static_cast<int32_t>(tokens.size()); begin += chunk) {
      const int32_t num_rows = std::min(chunk, static_cast<int32_t>(tokens.size()) - begin);
      ForwardBatch batch;
      AppendSegment({.block_table = blocks_, .first_position = begin, .chain = tokens.subspan(begin, num_rows)},
                    &batch);
      model_.transformer->Forward(batch, model_.kv);
      std::vector<FeatureRow> rows;
      for (int32_t row = 0; row < num_rows; ++row) rows.push_back({.row = row, .slot = batch.slots[row]});
      plane_->Store(rows);
    }
  }

  std::vector<float> Feature(int32_t position) {
    std::vector<float> values;
    for (const uint16_t bits : plane_->Read(blocks_, position, position + 1)) values.push_back(FloatFromBf16(bits));
    return values;
  }

  LoadedModel model_ = testing::LoadModel(SourcePath("deploy/demo/target"));
  const std::vector<int32_t> blocks_ = {7, 3, 20, 1, 30};
  std::unique_ptr<FeaturePlane> plane_;
};

double Norm2(const std::vector<float>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

json ReferenceCases() {
  return json::parse(base::ReadFile(SourcePath("deploy/demo/eagle3/reference.json")).value())["cases"];
}

// The reference computes in double; bf16 values keep 8 bits, and rounded inputs of products add up over the layers.
TEST_F(FeaturePlaneTest, EqualsTheReferencesLayers) {
  for (const int32_t k : {2, 4, 5}) {
    MakePlane({.layers = {k}, .target_hidden_size = kHidden});
    for (const json& reference : ReferenceCases()) {
      const auto tokens = reference["token_ids"].get<std::vector<int32_t>>();
      Compute(tokens, 512);
      const std::vector<float> feature = Feature(static_cast<int32_t>(tokens.size()) - 1);
      const json& expected = reference["features"]["S_" + std::to_string(k)];
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(feature[i], expected["first4"][i].get<double>(), 0.1) << k;
      EXPECT_NEAR(Norm2(feature), expected["norm"].get<double>(), 0.3) << k;
    }
  }
}

// Each captured layer takes memory for all rows of a pass, so it is freed when nobody reads it any more.
TEST_F(FeaturePlaneTest, LayersThatAreNoLongerCapturedAreFreed) {
  const std::vector<int32_t> both = {2, 4}, one = {4};
  model_.transformer->Capture(both);
  model_.transformer->Capture(one);
  EXPECT_EQ(model_.transformer->captured(4).shape[1], kHidden);
  EXPECT_THROW(model_.transformer->captured(2), std::out_of_range);
}

TEST_F(FeaturePlaneTest, ProjectsAsTheReferenceDoes) {
  MakePlane(Eagle3Features());
  for (const json& reference : ReferenceCases()) {
    const auto tokens = reference["token_ids"].get<std::vector<int32_t>>();
    Compute(tokens, 512);
    const std::vector<float> feature = Feature(static_cast<int32_t>(tokens.size()) - 1);
    const json& expected = reference["drafts"][0]["input"]["feature_first4"];
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(feature[i], expected[i].get<double>(), 0.25);
  }
}

// Whoever prepares it stands still meanwhile, so a large weight is prepared in parts. Its features are those of planes
// that have their outputs alone.
TEST_F(FeaturePlaneTest, ALargeProjectionIsPreparedInParts) {
  constexpr int64_t kOutputs = 20'000, kInputs = 2 * kHidden, kSome = 100;
  const std::vector<float> normals = testing::RandomValues(3).Normals(kOutputs * kInputs, 0.05f);
  std::vector<uint16_t> weight;
  for (const float value : normals) weight.push_back(kernels::Bf16FromFloat(value));
  const auto features_of = [&](int64_t first, int64_t num) {
    FeatureProjection projection = {.num_outputs = num};
    projection.weight.assign(weight.begin() + first * kInputs, weight.begin() + (first + num) * kInputs);
    return TargetFeatures{.layers = {2, 4}, .target_hidden_size = kHidden, .projection = std::move(projection)};
  };
  const std::vector<int32_t> tokens = {5, 17, 300, 4};
  const TargetFeatures large = features_of(0, kOutputs);
  FeaturePlane parts(large, *model_.transformer, model_.kv.num_blocks);
  int num_parts = 1;
  EXPECT_FALSE(parts.is_prepared());
  while (!parts.Prepare()) ++num_parts;
  EXPECT_TRUE(parts.is_prepared());
  EXPECT_EQ(num_parts, (kOutputs * kInputs * 2 + FeaturePlane::kPartBytes - 1) / FeaturePlane::kPartBytes);
  MakePlane(large);
  Compute(tokens, 512);
  const std::vector<float> all = Feature(3);
  for (const int64_t first : {int64_t{0}, int64_t{16'350}, kOutputs - kSome}) {  // 16,384 outputs make a part
    const TargetFeatures some = features_of(first, kSome);
    MakePlane(some);
    Compute(tokens, 512);
    EXPECT_EQ(Feature(3), std::vector<float>(all.begin() + first, all.begin() + first + kSome)) << first;
  }
}

TEST_F(FeaturePlaneTest, TheLastHiddenStateIsNormed) {
  MakePlane({.target_hidden_size = kHidden});
  for (const json& reference : ReferenceCases()) {
    const auto tokens = reference["token_ids"].get<std::vector<int32_t>>();
    Compute(tokens, 512);
    const std::vector<float> feature = Feature(static_cast<int32_t>(tokens.size()) - 1);
    // In each of the five layers four inputs of products are rounded to bf16, by a relative 2^-9. The roundings are
    // independent, and the norm brings them to the size of its outputs.
    const auto is_smaller = [](float a, float b) { return std::abs(a) < std::abs(b); };
    const double tolerance = std::sqrt(20.0) * 0x1p-9 * std::abs(*std::ranges::max_element(feature, is_smaller));
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(feature[i], reference["hidden_first4"][i].get<double>(), tolerance);
  }
}

TEST_F(FeaturePlaneTest, HasTheSameBitsForAnyChunksAndForTrees) {
  MakePlane(Eagle3Features());
  const std::vector<int32_t> tokens = testing::RandomTokens(40, 4000, 1);
  Compute(tokens, 512);
  const std::vector<uint16_t> expected = plane_->Read(blocks_, 0, 40);
  for (const int32_t chunk : {1, 7, 16}) {
    plane_->Forget();
    Compute(tokens, chunk);
    EXPECT_EQ(plane_->Read(blocks_, 0, 40), expected) << chunk;
  }
  // Positions 33 to 39 are an accepted path among other nodes. Their K/V stand in spare slots.
  plane_->Forget();
  Compute(std::span(tokens).first(32), 512);
  ForwardBatch batch;
  const std::vector<int32_t> nodes = {9,          tokens[33], 5,          tokens[34], tokens[35],
                                      tokens[36], 1,          tokens[37], tokens[38], tokens[39]};
  const std::vector<int32_t> parents = {-1, -1, 1, 1, 3, 4, 4, 5, 7, 8};
  std::vector<int32_t> slots(nodes.size());
  std::iota(slots.begin(), slots.end(), 50 * 16);
  const int32_t root = AppendSegment({.block_table = blocks_,
                                      .first_position = 32,
                                      .chain = std::span(tokens).subspan(32, 1),
                                      .tree_token_ids = nodes,
                                      .tree_parents = parents,
                                      .tree_slots = slots},
                                     &batch);
  model_.transformer->Forward(batch, model_.kv);
  std::vector<FeatureRow> rows = {{.row = root, .slot = SlotOf(blocks_, 32)}};
  for (const int32_t node : {1, 3, 4, 5, 7, 8, 9}) {
    const int32_t row = root + 1 + node;
    rows.push_back({.row = row, .slot = SlotOf(blocks_, batch.positions[row])});
  }
  plane_->Store(rows);
  EXPECT_EQ(plane_->Read(blocks_, 0, 40), expected);
}

TEST_F(FeaturePlaneTest, KnowsOnlyWhatItStored) {
  MakePlane(Eagle3Features());
  const std::vector<int32_t> tokens = testing::RandomTokens(40, 4000, 1);
  EXPECT_EQ(plane_->FirstKnown(blocks_, 0, 40), 40);
  Compute(tokens, 512);
  EXPECT_EQ(plane_->FirstKnown(blocks_, 0, 40), 0);
  EXPECT_EQ(plane_->FirstKnown(blocks_, 17, 40), 17);
  EXPECT_EQ(plane_->FirstKnown(blocks_, 17, 41), 41);
  // A sequence whose first two blocks were computed before the plane existed.
  plane_->Forget();
  std::vector<FeatureRow> rows;
  for (int32_t position = 33; position < 40; ++position) rows.push_back({.slot = SlotOf(blocks_, position)});
  plane_->Store(rows);
  EXPECT_EQ(plane_->FirstKnown(blocks_, 0, 40), 33);
  const std::vector<int32_t> others = {11, 3, 20};
  EXPECT_EQ(plane_->FirstKnown(others, 0, 40), 33);
}

// With a gain of ones, both norms give unit root mean squares; with one layer they agree.
TEST_F(FeaturePlaneTest, NormsBeforeTheProduct) {
  const std::vector<int32_t> tokens = testing::RandomTokens(20, 4000, 2);
  MakePlane(OneLayer(4, Norm::kNone, {}));
  Compute(tokens, 512);
  const std::vector<float> raw = Feature(19);
  for (const Norm norm : {Norm::kWhole, Norm::kPerLayer}) {
    std::vector<float> gains(kHidden, 1);
    gains[1] = 3;
    MakePlane(OneLayer(4, norm, gains));
    Compute(tokens, 512);
    const std::vector<float> normed = Feature(19);
    const auto rms = static_cast<float>(Norm2(raw) / std::sqrt(kHidden));
    for (size_t i = 0; i < kHidden; ++i) {
      const float expected = raw[i] / rms * gains[i];
      // raw and normed are each rounded to bf16 once or twice: 2^-8 each.
      EXPECT_NEAR(normed[i], expected, 3 * std::abs(expected) / 256 + 1e-3) << i;
    }
  }
}

// Two layers have one root mean square together, or one each.
TEST_F(FeaturePlaneTest, DistinguishesANormOverAllLayersFromOneForEach) {
  const std::vector<int32_t> tokens = testing::RandomTokens(20, 4000, 2);
  const auto features = [&](Norm norm) {
    FeatureProjection projection = {
        .num_outputs = 2 * kHidden, .norm = norm, .gains = std::vector<float>(2 * kHidden, 1), .eps = 1e-5f};
    projection.weight.assign(size_t{4} * kHidden * kHidden, 0);
    for (size_t i = 0; i < 2 * kHidden; ++i) projection.weight[i * 2 * kHidden + i] = kernels::Bf16FromFloat(1);
    return TargetFeatures{.layers = {0, 8}, .target_hidden_size = kHidden, .projection = std::move(projection)};
  };
  const auto halves = [&](Norm norm) {
    MakePlane(features(norm));
    Compute(tokens, 512);
    const std::vector<float> both = Feature(19);
    return std::pair(Norm2({both.begin(), both.begin() + kHidden}), Norm2({both.begin() + kHidden, both.end()}));
  };
  const auto [first_each, second_each] = halves(Norm::kPerLayer);
  EXPECT_NEAR(first_each, 16, 0.1);  // the square root of 256
  EXPECT_NEAR(second_each, 16, 0.1);
  const auto [first, second] = halves(Norm::kWhole);
  EXPECT_NEAR(std::hypot(first, second), std::sqrt(512), 0.1);
  EXPECT_LT(first, second / 4);  // the residual stream grows over the layers
}

}  // namespace
}  // namespace foretoken::model
