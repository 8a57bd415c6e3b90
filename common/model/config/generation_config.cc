// SPDX-License-Identifier: Apache-2.0
#include "common/model/config/generation_config.h"

#include <cmath>
#include <limits>

#include "common/base/json_fields.h"
#include "common/base/status_macros.h"
#include "common/gguf/model_files.h"

namespace foretoken::model {

namespace {

struct Range {
  bool (*contains)(float);
  const char* expected;
};

// Reads a number in the single precision of requests, where tiny numbers become 0 and huge numbers infinite.
absl::StatusOr<std::optional<float>> ReadNumber(const JsonFields& fields, const char* name, const Range& range) {
  FT_ASSIGN_OR_RETURN(const std::optional<double> number, fields.Optional<double>(name));
  if (!number) return std::optional<float>();
  const auto value = static_cast<float>(*number);
  if (!std::isfinite(value) || !range.contains(value)) {
    return fields.Error(name, "expects ", range.expected, ", got ", *number);
  }
  return std::optional<float>(value);
}

}  // namespace

absl::StatusOr<GenerationConfig> ParseGenerationConfig(absl::string_view text, absl::string_view source) {
  constexpr Range kAtLeast0 = {[](float value) { return value >= 0; }, "at least 0, in single precision"};
  constexpr Range kAbove0 = {[](float value) { return value > 0; }, "above 0, in single precision"};
  constexpr Range kShareAbove0 = {[](float value) { return value > 0 && value <= 1; }, "above 0 and at most 1"};
  constexpr Range kShare = {[](float value) { return value >= 0 && value <= 1; }, "from 0 to 1"};
  constexpr int64_t kMaxTopK = std::numeric_limits<int32_t>::max();

  FT_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Parse(text, source));
  GenerationConfig config;
  FT_ASSIGN_OR_RETURN(config.eos_token_ids, fields.OrDefault("eos_token_id", std::vector<int64_t>()));
  for (const int64_t id : config.eos_token_ids) {
    if (id < 0) return fields.Error("eos_token_id", "expects ids of at least 0, got ", id);
  }
  FT_ASSIGN_OR_RETURN(config.temperature, ReadNumber(fields, "temperature", kAtLeast0));
  FT_ASSIGN_OR_RETURN(const bool do_sample, fields.OrDefault<bool>("do_sample", true));
  if (!do_sample) config.temperature = 0;
  FT_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, fields.Optional<int64_t>("top_k"));
  if (top_k && (*top_k < 0 || *top_k > kMaxTopK)) {
    return fields.Error("top_k", "expects from 0 to ", kMaxTopK, ", got ", *top_k);
  }
  if (top_k) config.top_k = static_cast<int32_t>(*top_k);
  FT_ASSIGN_OR_RETURN(config.top_p, ReadNumber(fields, "top_p", kShareAbove0));
  FT_ASSIGN_OR_RETURN(config.min_p, ReadNumber(fields, "min_p", kShare));
  FT_ASSIGN_OR_RETURN(config.repetition_penalty, ReadNumber(fields, "repetition_penalty", kAbove0));
  return config;
}

absl::StatusOr<GenerationConfig> LoadGenerationConfig(const std::string& directory) {
  constexpr const char* kFileName = "generation_config.json";
  const absl::StatusOr<std::string> text = gguf::ReadModelFile(directory, kFileName);
  if (absl::IsNotFound(text.status())) return GenerationConfig();
  if (!text.ok()) return text.status();
  return ParseGenerationConfig(*text, gguf::ModelFileName(directory, kFileName));
}

}  // namespace foretoken::model
