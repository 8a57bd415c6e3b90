// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/feature_conversion.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error_text.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/rpc/proposal_protocol.h"

namespace foretoken::rpc {
namespace {

using speculation::FeatureProjection;
using speculation::TargetFeatures;
using Norm = FeatureProjection::Norm;

constexpr absl::string_view kLayerPrefix = "hidden_states.";
constexpr absl::string_view kLastHiddenState = "last_hidden_state";
constexpr int kMaxFeatures = 64;
constexpr int64_t kMaxOutputsPerInput = 4;  // numbers of a projected feature, per number of the target's hidden size
constexpr size_t kDigestBytes = 64;         // in hex

v1::FeatureNorm ToProto(Norm norm) {
  switch (norm) {
    case Norm::kNone:
      return v1::FEATURE_NORM_UNSPECIFIED;
    case Norm::kWhole:
      return v1::FEATURE_NORM_WHOLE;
    case Norm::kPerLayer:
      return v1::FEATURE_NORM_PER_FEATURE;
  }
  return v1::FEATURE_NORM_UNSPECIFIED;
}

std::optional<Norm> FromProto(v1::FeatureNorm norm) {
  if (norm == v1::FEATURE_NORM_UNSPECIFIED) return Norm::kNone;
  if (norm == v1::FEATURE_NORM_WHOLE) return Norm::kWhole;
  if (norm == v1::FEATURE_NORM_PER_FEATURE) return Norm::kPerLayer;
  return std::nullopt;  // newer than this build
}

template <typename Expected, typename Got>
absl::Status Invalid(absl::string_view field, const Expected& expected, const Got& got) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got));
}

absl::StatusOr<int32_t> LayerOf(absl::string_view name, const TargetShape& shape) {
  absl::string_view number = name;
  int32_t k = 0;
  if (!absl::ConsumePrefix(&number, kLayerPrefix) || !absl::SimpleAtoi(number, &k) || k < 0 || k > shape.num_layers ||
      number != absl::StrCat(k)) {
    return Invalid("needed_features",
                   absl::StrCat("\"", kLayerPrefix, "0\" to \"", kLayerPrefix, shape.num_layers, "\", or \"",
                                kLastHiddenState, "\" alone"),
                   base::Quoted(name));
  }
  return k;
}

absl::StatusOr<std::vector<int32_t>> LayersOf(const v1::DescribeProposerResponse& response, const TargetShape& shape) {
  if (response.needed_features_size() > kMaxFeatures) {
    return Invalid("needed_features", absl::StrCat("at most ", kMaxFeatures), response.needed_features_size());
  }
  std::vector<int32_t> layers;
  if (response.needed_features_size() == 1 && response.needed_features(0) == kLastHiddenState) return layers;
  for (const std::string& name : response.needed_features()) {
    FT_ASSIGN_OR_RETURN(layers.emplace_back(), LayerOf(name, shape));
  }
  return layers;
}

// It may name a file.
bool IsDigest(absl::string_view text) {
  return text.size() == kDigestBytes && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string ProjectionBytes(const FeatureProjection& projection) {
  const size_t num_weight_bytes = projection.weight.size() * sizeof(uint16_t);
  std::string bytes(num_weight_bytes + projection.gains.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), projection.weight.data(), num_weight_bytes);
  if (!projection.gains.empty()) {
    std::memcpy(bytes.data() + num_weight_bytes, projection.gains.data(), bytes.size() - num_weight_bytes);
  }
  return bytes;
}

std::string ProjectionDigest(absl::string_view bytes) {
  base::Sha256 digest;
  digest.Update(bytes);
  return base::ToHex(digest.Finish());
}

void WriteFeatures(const TargetFeatures& features, absl::string_view digest, v1::DescribeProposerResponse& response) {
  for (const int32_t k : features.layers) response.add_needed_features(absl::StrCat(kLayerPrefix, k));
  if (features.layers.empty()) response.add_needed_features(std::string(kLastHiddenState));
  response.set_target_hidden_size(static_cast<uint32_t>(features.target_hidden_size));
  if (!features.projection.has_value()) return;
  v1::FeatureProjection& projection = *response.mutable_projection();
  projection.set_num_outputs(static_cast<uint32_t>(features.projection->num_outputs));
  projection.set_norm(ToProto(features.projection->norm));
  projection.set_norm_eps(features.projection->eps);
  projection.set_digest(std::string(digest));
}

absl::StatusOr<AnnouncedFeatures> ReadFeatures(const v1::DescribeProposerResponse& response, const TargetShape& shape) {
  AnnouncedFeatures announced;
  TargetFeatures& features = announced.features;
  FT_ASSIGN_OR_RETURN(features.layers, LayersOf(response, shape));
  if (response.target_hidden_size() != shape.hidden_size) {
    return Invalid("target_hidden_size", shape.hidden_size, response.target_hidden_size());
  }
  features.target_hidden_size = shape.hidden_size;
  if (!response.has_projection()) {
    if (features.layers.size() > 1) return Invalid("projection", "one for several features", "none");
    return announced;
  }
  if (features.layers.empty()) {
    return Invalid("projection", absl::StrCat("none for \"", kLastHiddenState, "\""), "one");
  }
  const v1::FeatureProjection& message = response.projection();
  // The verifier keeps so many numbers for every K/V slot.
  const int64_t max_outputs = std::min<int64_t>(kMaxFeatureWidth, kMaxOutputsPerInput * shape.hidden_size);
  if (message.num_outputs() < 1 || message.num_outputs() > max_outputs) {
    return Invalid("projection.num_outputs", absl::StrCat("1 to ", max_outputs), message.num_outputs());
  }
  const std::optional<Norm> norm = FromProto(message.norm());
  if (!norm.has_value()) return Invalid("projection.norm", "a known norm", static_cast<int>(message.norm()));
  if (!(message.norm_eps() >= 0 && std::isfinite(message.norm_eps()))) {
    return Invalid("projection.norm_eps", "a number, at least 0", message.norm_eps());
  }
  if (!IsDigest(message.digest())) {
    return Invalid("projection.digest", absl::StrCat(kDigestBytes, " hexadecimal digits"),
                   base::Quoted(message.digest()));
  }
  features.projection = {.num_outputs = message.num_outputs(), .norm = *norm, .eps = message.norm_eps()};
  announced.digest = message.digest();
  const size_t num_inputs = features.layers.size() * static_cast<size_t>(shape.hidden_size);
  announced.num_projection_bytes =
      message.num_outputs() * num_inputs * sizeof(uint16_t) + (*norm == Norm::kNone ? 0 : num_inputs * sizeof(float));
  return announced;
}

absl::Status FillProjection(absl::string_view bytes, AnnouncedFeatures& announced) {
  if (bytes.size() != announced.num_projection_bytes) {
    return Invalid("projection", absl::StrCat(announced.num_projection_bytes, " bytes"), bytes.size());
  }
  if (const std::string digest = ProjectionDigest(bytes); digest != announced.digest) {
    return Invalid("projection.digest", base::Quoted(announced.digest), digest);
  }
  FeatureProjection& projection = *announced.features.projection;
  const size_t num_inputs = announced.features.layers.size() * announced.features.target_hidden_size;
  projection.weight.resize(projection.num_outputs * num_inputs);
  const size_t num_weight_bytes = projection.weight.size() * sizeof(uint16_t);
  std::memcpy(projection.weight.data(), bytes.data(), num_weight_bytes);
  projection.gains.resize((bytes.size() - num_weight_bytes) / sizeof(float));
  if (!projection.gains.empty()) {
    std::memcpy(projection.gains.data(), bytes.data() + num_weight_bytes, bytes.size() - num_weight_bytes);
  }
  return absl::OkStatus();
}

}  // namespace foretoken::rpc
