// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/rope_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/gguf/tensor_names.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

// Of all published models of Llama 3.1 to 3.3.
constexpr double kLowFrequencyFactor = 1, kHighFrequencyFactor = 4;
constexpr int64_t kOriginalPositions = 8192;

// What divides the frequency of a pair in Llama 3's rule.
double Llama3Divisor(double frequency, double factor) {
  const double turns = kOriginalPositions * frequency / (2 * std::numbers::pi);
  if (turns < kLowFrequencyFactor) return factor;
  if (turns > kHighFrequencyFactor) return 1;
  const double kept = (turns - kLowFrequencyFactor) / (kHighFrequencyFactor - kLowFrequencyFactor);
  return 1 / ((1 - kept) / factor + kept);
}

bool IsLlama3(const std::vector<float>& divisors, const RopeSource& source, double factor) {
  constexpr double kRounding = 1e-5;  // converters compute the tensor in f32
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double frequency =
        std::pow(source.theta, -2.0 * static_cast<double>(i) / static_cast<double>(source.head_dim));
    const double expected = Llama3Divisor(frequency, factor);
    if (!(std::abs(divisors[i] - expected) <= kRounding * expected)) return false;
  }
  return true;
}

absl::StatusOr<std::vector<float>> ReadDivisors(const RopeSource& source, const GgufTensor& tensor) {
  const std::string where = absl::StrCat("tensor ", kRopeFactors);
  if (tensor.type.name != "F32" || tensor.shape != std::vector<int64_t>{source.head_dim / 2}) {
    return source.model.metadata().Error(where, "expected F32 [", source.head_dim / 2, "], got ", tensor.type.name,
                                         " [", absl::StrJoin(tensor.shape, ", "), "]");
  }
  std::vector<float> divisors(tensor.shape[0]);
  std::memcpy(divisors.data(), tensor.bytes.data(), tensor.bytes.size());
  for (const float divisor : divisors) {
    if (!(divisor > 0 && std::isfinite(divisor))) {
      return source.model.metadata().Error(where, "expected numbers above 0, got ", divisor);
    }
  }
  return divisors;
}

absl::StatusOr<json> FromTensor(const RopeSource& source, const GgufTensor& tensor) {
  FT_ASSIGN_OR_RETURN(const std::vector<float> divisors, ReadDivisors(source, tensor));
  const double factor = std::round(*std::ranges::max_element(divisors));
  if (IsLlama3(divisors, source, factor)) {
    return json{{"rope_type", "llama3"},
                {"factor", factor},
                {"low_freq_factor", kLowFrequencyFactor},
                {"high_freq_factor", kHighFrequencyFactor},
                {"original_max_position_embeddings", kOriginalPositions}};
  }
  return json{{"rope_type", "divisors"}, {"divisors", divisors}};
}

}  // namespace

absl::StatusOr<json> RopeScalingJson(const RopeSource& source) {
  const Metadata& metadata = source.model.metadata();
  const std::string prefix = source.architecture + ".rope.scaling.";
  const std::string type_key = prefix + "type", length_key = prefix + "original_context_length";
  FT_ASSIGN_OR_RETURN(std::string type, metadata.OrDefault<std::string>(type_key, "none"));
  FT_ASSIGN_OR_RETURN(auto factor, metadata.Optional<double>(prefix + "factor"));
  FT_ASSIGN_OR_RETURN(const auto old_factor, metadata.Optional<double>(source.architecture + ".rope.scale_linear"));
  if (type == "none" && old_factor && *old_factor != 1) {
    type = "linear";
    factor = old_factor;
  }
  if (const GgufTensor* tensor = source.model.FindTensor(kRopeFactors)) {
    if (type != "none") return metadata.Error(type_key, "expected none beside tensor ", kRopeFactors, ", got ", type);
    return FromTensor(source, *tensor);
  }
  if (type == "none") return json();
  if (type != "linear" && type != "yarn") return metadata.Error(type_key, "expected none, linear or yarn, got ", type);
  if (!factor) return metadata.Error(prefix + "factor", "is missing");
  json scaling = {{"rope_type", type}, {"factor", *factor}};
  if (type == "linear") return scaling;
  FT_ASSIGN_OR_RETURN(const auto length, metadata.Optional<int64_t>(length_key));
  if (length) scaling["original_max_position_embeddings"] = *length;
  for (const char* name : {"beta_fast", "beta_slow"}) {
    FT_ASSIGN_OR_RETURN(const auto beta, metadata.Optional<double>(absl::StrCat(prefix, "yarn_", name)));
    if (beta) scaling[name] = *beta;
  }
  return scaling;
}

}  // namespace foretoken::gguf
