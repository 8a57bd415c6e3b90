// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/rope_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

constexpr const char* kDivisors = "rope_freqs.weight";
constexpr const char* kShortDivisors = "rope_factors_short.weight";
constexpr const char* kLongDivisors = "rope_factors_long.weight";

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
        std::pow(source.theta, -2.0 * static_cast<double>(i) / static_cast<double>(source.num_turned));
    const double expected = Llama3Divisor(frequency, factor);
    if (!(std::abs(divisors[i] - expected) <= kRounding * expected)) return false;
  }
  return true;
}

absl::StatusOr<std::vector<float>> ReadDivisors(const RopeSource& source, const char* name) {
  const std::string where = absl::StrCat("tensor ", name);
  const GgufTensor* const tensor = source.model.FindTensor(name);
  if (tensor == nullptr) return source.model.metadata().Error(where, "is missing");
  if (tensor->type.name != "F32" || tensor->shape != std::vector<int64_t>{source.num_turned / 2}) {
    return source.model.metadata().Error(where, "expected F32 [", source.num_turned / 2, "], got ", tensor->type.name,
                                         " [", absl::StrJoin(tensor->shape, ", "), "]");
  }
  std::vector<float> divisors(tensor->shape[0]);
  std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
  for (const float divisor : divisors) {
    if (!(divisor > 0 && std::isfinite(divisor))) {
      return source.model.metadata().Error(where, "expected numbers above 0, got ", divisor);
    }
  }
  return divisors;
}

absl::StatusOr<json> FromDivisors(const RopeSource& source) {
  FT_ASSIGN_OR_RETURN(const std::vector<float> divisors, ReadDivisors(source, kDivisors));
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

absl::StatusOr<json> FromShortAndLong(const RopeSource& source, const std::string& prefix) {
  const Metadata& metadata = source.model.metadata();
  json scaling = {{"rope_type", "longrope"}};
  FT_ASSIGN_OR_RETURN(scaling["short_factor"], ReadDivisors(source, kShortDivisors));
  FT_ASSIGN_OR_RETURN(scaling["long_factor"], ReadDivisors(source, kLongDivisors));
  FT_ASSIGN_OR_RETURN(scaling["original_max_position_embeddings"],
                      metadata.Required<int64_t>(prefix + "original_context_length"));
  FT_ASSIGN_OR_RETURN(const auto factor, metadata.Optional<double>(prefix + "attn_factor"));
  if (factor) scaling["attention_factor"] = *factor;
  return scaling;
}

absl::StatusOr<json> FromYarn(const RopeSource& source, const std::string& prefix, double factor) {
  const Metadata& metadata = source.model.metadata();
  json scaling = {{"rope_type", "yarn"}, {"factor", factor}, {"truncate", source.architecture.rounds_yarn}};
  FT_ASSIGN_OR_RETURN(const auto length, metadata.Optional<int64_t>(prefix + "original_context_length"));
  if (length) scaling["original_max_position_embeddings"] = *length;
  for (const char* name : {"beta_fast", "beta_slow"}) {
    FT_ASSIGN_OR_RETURN(const auto beta, metadata.Optional<double>(absl::StrCat(prefix, "yarn_", name)));
    if (beta) scaling[name] = *beta;
  }
  return scaling;
}

}  // namespace

bool IsRopeTensor(absl::string_view name) {
  return name == kDivisors || name == kShortDivisors || name == kLongDivisors;
}

absl::StatusOr<json> RopeScalingJson(const RopeSource& source) {
  const Metadata& metadata = source.model.metadata();
  const std::string architecture = source.architecture.name, prefix = architecture + ".rope.scaling.";
  const std::string type_key = prefix + "type";
  FT_ASSIGN_OR_RETURN(std::string type, metadata.OrDefault<std::string>(type_key, "none"));
  FT_ASSIGN_OR_RETURN(auto factor, metadata.Optional<double>(prefix + "factor"));
  FT_ASSIGN_OR_RETURN(const auto old_factor, metadata.Optional<double>(architecture + ".rope.scale_linear"));
  if (type == "none" && old_factor && *old_factor != 1) {
    type = "linear";
    factor = old_factor;
  }
  const bool has_one_list = source.model.FindTensor(kDivisors) != nullptr;
  const bool has_two_lists = source.model.FindTensor(kLongDivisors) || source.model.FindTensor(kShortDivisors);
  if (has_one_list && has_two_lists) {
    return metadata.Error(absl::StrCat("tensor ", kDivisors), "expected none beside ", kShortDivisors, " and ",
                          kLongDivisors);
  }
  if (has_two_lists && (type == "none" || type == "longrope")) return FromShortAndLong(source, prefix);
  const std::string attention_key = prefix + "attn_factor";
  FT_ASSIGN_OR_RETURN(const double attention_factor, metadata.OrDefault<double>(attention_key, 1));
  if (attention_factor != 1) {
    return metadata.Error(attention_key, "is not supported without tensor ", kLongDivisors, ": expected 1, got ",
                          attention_factor);
  }
  if ((has_one_list || has_two_lists) && type != "none") {
    return metadata.Error(type_key, "expected none beside tensor ", has_one_list ? kDivisors : kLongDivisors, ", got ",
                          type);
  }
  if (has_one_list) return FromDivisors(source);
  if (type == "none") return json();
  if (type != "linear" && type != "yarn") return metadata.Error(type_key, "expected none, linear or yarn, got ", type);
  if (!factor) return metadata.Error(prefix + "factor", "is missing");
  if (type == "yarn") return FromYarn(source, prefix, *factor);
  return json{{"rope_type", type}, {"factor", *factor}};
}

}  // namespace foretoken::gguf
