// SPDX-License-Identifier: Apache-2.0
#include "common/model/rope_config.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/base/status_macros.h"

namespace foretoken::model {
namespace {

// Finds the object that holds the rotary settings; unset: there is none.
absl::StatusOr<std::optional<JsonFields>> FindRopeObject(const JsonFields& config) {
  FT_ASSIGN_OR_RETURN(std::optional<JsonFields> rope, config.Object("rope_scaling"));
  if (rope) return rope;
  FT_ASSIGN_OR_RETURN(rope, config.Object("rope_parameters"));
  if (!rope) return rope;
  const bool has_full = rope->Has("full_attention");
  const bool has_sliding = rope->Has("sliding_attention");
  if (has_full && has_sliding && rope->Text("full_attention") != rope->Text("sliding_attention")) {
    return config.Error("rope_parameters", "expects the same values for full_attention and sliding_attention, got ",
                        rope->Text("full_attention"), " and ", rope->Text("sliding_attention"));
  }
  if (has_full || has_sliding) return rope->Object(has_full ? "full_attention" : "sliding_attention");
  return rope;
}

absl::StatusOr<double> RequirePositive(const JsonFields& fields, const std::string& name) {
  FT_ASSIGN_OR_RETURN(const double value, fields.Required<double>(name));
  if (value <= 0) return fields.Error(name, "expects a number above 0, got ", value);
  return value;
}

// Reads an optional number; 0 counts as absent, as in transformers.
absl::StatusOr<std::optional<double>> PositiveOrAbsent(const JsonFields& fields, const std::string& name) {
  FT_ASSIGN_OR_RETURN(std::optional<double> value, fields.Optional<double>(name));
  if (value && *value < 0) return fields.Error(name, "expects a number of at least 0, got ", *value);
  if (value == 0.0) value.reset();
  return value;
}

struct OriginalLength {
  const JsonFields& config;
  const JsonFields& rope;
  int64_t max_position_embeddings;
};

absl::StatusOr<int64_t> ReadOriginalLength(const OriginalLength& from) {
  const std::string name = "original_max_position_embeddings";
  const JsonFields& fields = from.config.Has(name) ? from.config : from.rope;
  FT_ASSIGN_OR_RETURN(const int64_t length, fields.OrDefault<int64_t>(name, from.max_position_embeddings));
  if (length <= 0) return fields.Error(name, "expects an integer above 0, got ", length);
  return length;
}

absl::StatusOr<Llama3Scaling> ReadLlama3(const OriginalLength& from) {
  Llama3Scaling scaling;
  FT_ASSIGN_OR_RETURN(scaling.factor, RequirePositive(from.rope, "factor"));
  FT_ASSIGN_OR_RETURN(scaling.low_freq_factor, RequirePositive(from.rope, "low_freq_factor"));
  FT_ASSIGN_OR_RETURN(scaling.high_freq_factor, RequirePositive(from.rope, "high_freq_factor"));
  FT_ASSIGN_OR_RETURN(scaling.original_max_positions, ReadOriginalLength(from));
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return from.rope.Error("high_freq_factor", "expects more than low_freq_factor ", scaling.low_freq_factor, ", got ",
                           scaling.high_freq_factor);
  }
  return scaling;
}

absl::StatusOr<YarnScaling> ReadYarn(const OriginalLength& from) {
  const JsonFields& rope = from.rope;
  YarnScaling scaling;
  FT_ASSIGN_OR_RETURN(scaling.original_max_positions, ReadOriginalLength(from));
  if (rope.Has("factor")) {
    FT_ASSIGN_OR_RETURN(scaling.factor, RequirePositive(rope, "factor"));
  } else {
    scaling.factor =
        static_cast<double>(from.max_position_embeddings) / static_cast<double>(scaling.original_max_positions);
  }
  FT_ASSIGN_OR_RETURN(const std::optional<double> beta_fast, PositiveOrAbsent(rope, "beta_fast"));
  FT_ASSIGN_OR_RETURN(const std::optional<double> beta_slow, PositiveOrAbsent(rope, "beta_slow"));
  scaling.beta_fast = beta_fast.value_or(scaling.beta_fast);
  scaling.beta_slow = beta_slow.value_or(scaling.beta_slow);
  if (scaling.beta_fast < scaling.beta_slow) {
    return rope.Error("beta_fast", "expects at least beta_slow ", scaling.beta_slow, ", got ", scaling.beta_fast);
  }
  FT_ASSIGN_OR_RETURN(scaling.truncate, rope.OrDefault<bool>("truncate", true));
  if (rope.Has("attention_factor")) {
    FT_ASSIGN_OR_RETURN(scaling.attention_factor, RequirePositive(rope, "attention_factor"));
  }
  FT_ASSIGN_OR_RETURN(scaling.mscale, PositiveOrAbsent(rope, "mscale"));
  FT_ASSIGN_OR_RETURN(scaling.mscale_all_dim, PositiveOrAbsent(rope, "mscale_all_dim"));
  return scaling;
}

absl::StatusOr<DivisorScaling> ReadDivisors(const JsonFields& rope) {
  DivisorScaling scaling;
  FT_ASSIGN_OR_RETURN(scaling.divisors, rope.Required<std::vector<double>>("divisors"));
  for (const double divisor : scaling.divisors) {
    if (divisor <= 0) return rope.Error("divisors", "expects numbers above 0, got ", divisor);
  }
  return scaling;
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const JsonFields& config, int64_t max_position_embeddings) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonFields> found, FindRopeObject(config));
  const JsonFields& rope = found ? *found : config;
  const JsonFields& theta_fields = rope.Has("rope_theta") ? rope : config;
  RopeConfig result;
  FT_ASSIGN_OR_RETURN(result.theta, theta_fields.OrDefault<double>("rope_theta", result.theta));
  if (result.theta <= 1) return theta_fields.Error("rope_theta", "expects a number above 1, got ", result.theta);
  if (!found) return result;

  FT_ASSIGN_OR_RETURN(const double rotary_part, rope.OrDefault<double>("partial_rotary_factor", 1.0));
  if (rotary_part != 1) return rope.Error("partial_rotary_factor", "expects 1, got ", rotary_part);
  const std::string type_field = rope.Has("rope_type") ? "rope_type" : "type";
  FT_ASSIGN_OR_RETURN(const std::string type, rope.OrDefault<std::string>(type_field, "default"));
  const OriginalLength from{config, rope, max_position_embeddings};
  if (type == "linear") {
    FT_ASSIGN_OR_RETURN(const double factor, RequirePositive(rope, "factor"));
    result.scaling = LinearScaling{.factor = factor};
  } else if (type == "llama3") {
    FT_ASSIGN_OR_RETURN(result.scaling, ReadLlama3(from));
  } else if (type == "yarn") {
    FT_ASSIGN_OR_RETURN(result.scaling, ReadYarn(from));
  } else if (type == "divisors") {
    FT_ASSIGN_OR_RETURN(result.scaling, ReadDivisors(rope));
  } else if (type != "default") {
    return rope.Error(type_field, "expects default, linear, llama3 or yarn, got ", type);
  }
  return result;
}

}  // namespace

absl::StatusOr<RopeSettings> ReadRopeSettings(const JsonFields& config, int64_t max_position_embeddings,
                                              int64_t most_positions) {
  RopeSettings settings = {.max_positions = max_position_embeddings};
  FT_ASSIGN_OR_RETURN(settings.rope, ReadRopeConfig(config, max_position_embeddings));
  const auto* yarn = std::get_if<YarnScaling>(&settings.rope.scaling);
  if (yarn == nullptr) return settings;
  // If the factor is a quotient of two lengths, the product is exactly the longer length, not one less.
  constexpr double kRounding = 1 + 1e-12;
  const double extended = std::floor(static_cast<double>(yarn->original_max_positions) * yarn->factor * kRounding);
  if (!(extended >= 1 && extended <= static_cast<double>(most_positions))) {
    return config.Error("rope_scaling", "expects original_max_position_embeddings x factor from 1 to ", most_positions,
                        ", got ", yarn->original_max_positions, " x ", yarn->factor);
  }
  settings.max_positions = static_cast<int64_t>(extended);
  return settings;
}

}  // namespace foretoken::model
