// SPDX-License-Identifier: Apache-2.0
// What a drafter announces, on the wire and back. If this test fails, a verifier takes a hostile description for a
// struct of its own, or a drafter reads other layers than it asked for.
#include "common/rpc/feature_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/rpc/proposal_protocol.h"

namespace foretoken::rpc {
namespace {

using speculation::FeatureProjection;
using speculation::TargetFeatures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Norm = FeatureProjection::Norm;

constexpr TargetShape kShape = {.hidden_size = 4, .num_layers = 8};

TargetFeatures Projected(Norm norm = Norm::kNone) {
  FeatureProjection projection = {.num_outputs = 3, .norm = norm, .eps = 0.25f};
  for (uint16_t i = 0; i < 3 * 8; ++i) projection.weight.push_back(i);
  if (norm != Norm::kNone) projection.gains = {1, 2, 3, 4, 5, 6, 7, 8};
  return {.layers = {7, 2}, .target_hidden_size = 4, .projection = std::move(projection)};
}

v1::DescribeProposerResponse Described(const TargetFeatures& features) {
  v1::DescribeProposerResponse response;
  const std::string bytes = features.projection.has_value() ? ProjectionBytes(*features.projection) : "";
  WriteFeatures(features, bytes.empty() ? "" : ProjectionDigest(bytes), response);
  return response;
}

TEST(FeatureConversion, KeepsWhatADrafterAnnounces) {
  for (const Norm norm : {Norm::kNone, Norm::kWhole, Norm::kPerLayer}) {
    const TargetFeatures features = Projected(norm);
    auto announced = ReadFeatures(Described(features), kShape);
    ASSERT_TRUE(announced.ok()) << announced.status();
    ASSERT_EQ(FillProjection(ProjectionBytes(*features.projection), *announced), absl::OkStatus());
    EXPECT_EQ(announced->features, features);
  }
  for (const std::vector<int32_t>& layers :
       {std::vector<int32_t>{}, std::vector<int32_t>{0}, std::vector<int32_t>{8}}) {
    const TargetFeatures features = {.layers = layers, .target_hidden_size = 4};
    EXPECT_EQ(ReadFeatures(Described(features), kShape)->features, features);
  }
  EXPECT_THAT(Described(Projected()).needed_features(), ElementsAre("hidden_states.7", "hidden_states.2"));
  EXPECT_THAT(Described({.target_hidden_size = 4}).needed_features(), ElementsAre("last_hidden_state"));
}

struct Fault {
  const char* message;
  void (*make)(v1::DescribeProposerResponse& response);
};

class FaultyFeatures : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyFeatures, AreRefusedByName) {
  v1::DescribeProposerResponse response = Described(Projected(Norm::kWhole));
  ASSERT_TRUE(ReadFeatures(response, kShape).ok());
  GetParam().make(response);
  const absl::Status status = ReadFeatures(response, kShape).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyFeatures,
    ::testing::Values(
        Fault{"\"hidden_states.9\"", [](auto& r) { r.set_needed_features(0, "hidden_states.9"); }},
        Fault{"\"hidden_states.-1\"", [](auto& r) { r.set_needed_features(0, "hidden_states.-1"); }},
        Fault{"\"hidden_states.07\"", [](auto& r) { r.set_needed_features(0, "hidden_states.07"); }},
        Fault{"\"hidden_states.\"", [](auto& r) { r.set_needed_features(0, "hidden_states."); }},
        Fault{"\"attentions.3\"", [](auto& r) { r.set_needed_features(1, "attentions.3"); }},
        Fault{"\"last_hidden_state\"", [](auto& r) { r.set_needed_features(1, "last_hidden_state"); }},
        Fault{"needed_features: expected at most 64, got 65",
              [](auto& r) {
                for (int i = 0; i < 63; ++i) r.add_needed_features("hidden_states.1");
              }},
        Fault{"target_hidden_size: expected 4, got 5", [](auto& r) { r.set_target_hidden_size(5); }},
        Fault{"projection: expected one for several", [](auto& r) { r.clear_projection(); }},
        Fault{"projection: expected none for",
              [](auto& r) {
                r.clear_needed_features();
                r.add_needed_features("last_hidden_state");
              }},
        Fault{"num_outputs: expected 1 to 16, got 0", [](auto& r) { r.mutable_projection()->set_num_outputs(0); }},
        Fault{"num_outputs: expected 1 to 16, got 17", [](auto& r) { r.mutable_projection()->set_num_outputs(17); }},
        Fault{"norm: expected a known norm, got 9",
              [](auto& r) { r.mutable_projection()->set_norm(static_cast<v1::FeatureNorm>(9)); }},
        Fault{"norm_eps", [](auto& r) { r.mutable_projection()->set_norm_eps(-1); }},
        Fault{"norm_eps",
              [](auto& r) { r.mutable_projection()->set_norm_eps(std::numeric_limits<float>::quiet_NaN()); }},
        Fault{"norm_eps",
              [](auto& r) { r.mutable_projection()->set_norm_eps(std::numeric_limits<float>::infinity()); }},
        Fault{"digest: expected 64 hexadecimal digits, got \"abc\"",
              [](auto& r) { r.mutable_projection()->set_digest("abc"); }},
        Fault{"digest: expected 64 hexadecimal digits, got \"../../",  // it names a file
              [](auto& r) { r.mutable_projection()->set_digest("../../" + std::string(58, 'a')); }}));

TEST(FeatureConversion, RefusesOtherBytesThanWereAnnounced) {
  const TargetFeatures features = Projected(Norm::kPerLayer);
  auto announced = ReadFeatures(Described(features), kShape).value();
  std::string bytes = ProjectionBytes(*features.projection);
  EXPECT_EQ(announced.num_projection_bytes, bytes.size());
  EXPECT_THAT(FillProjection(bytes.substr(1), announced).message(), HasSubstr("expected 80 bytes, got 79"));
  bytes[5] ^= 1;
  EXPECT_THAT(FillProjection(bytes, announced).message(), HasSubstr("projection.digest"));
}

}  // namespace
}  // namespace foretoken::rpc
