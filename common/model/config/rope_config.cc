// SPDX-License-Identifier: Apache-2.0
#include "common/model/config/rope_config.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/base/status_macros.h"

namespace foretoken::model {
namespace {

// The objects that hold the rotary settings of layers without a window and with one; unset: there is none.
struct RopeObjects {
  std::optional<JsonFields> full;
  std::optional<JsonFields> sliding;
};

absl::StatusOr<RopeObjects> FindRopeObjects(const JsonFields& config, const Family& family) {
  RopeObjects found;
  FT_ASSIGN_OR_RETURN(found.full, config.Object("rope_scaling"));
  if (found.full) return found;
  FT_ASSIGN_OR_RETURN(found.full, config.Object("rope_parameters"));
  if (!found.full) return found;
  const JsonFields rope = *found.full;
  const bool has_full = rope.Has("full_attention");
  const bool has_sliding = rope.Has("sliding_attention");
  const bool may_differ = family.sliding_rope_theta.has_value();
  if (!may_differ && has_full && has_sliding && rope.Text("full_attention") != rope.Text("sliding_attention")) {
    return config.Error("rope_parameters", "expects the same values for full_attention and sliding_attention, got ",
                        rope.Text("full_attention"), " and ", rope.Text("sliding_attention"));
  }
  if (!has_full && !has_sliding) return found;
  FT_ASSIGN_OR_RETURN(found.full, rope.Object(has_full || may_differ ? "full_attention" : "sliding_attention"));
  FT_ASSIGN_OR_RETURN(found.sliding, rope.Object("sliding_attention"));
  return found;
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

absl::StatusOr<std::vector<double>> ReadDivisors(const JsonFields& rope, const std::string& name) {
  FT_ASSIGN_OR_RETURN(std::vector<double> divisors, rope.Required<std::vector<double>>(name));
  for (const double divisor : divisors) {
    if (divisor <= 0) return rope.Error(name, "expects numbers above 0, got ", divisor);
  }
  return divisors;
}

// LongRoPE: two lists of divisors, and a factor for cos and sin that grows with the context.
absl::StatusOr<DivisorScaling> ReadLongRope(const OriginalLength& from) {
  const JsonFields& rope = from.rope;
  DivisorScaling scaling;
  FT_ASSIGN_OR_RETURN(scaling.divisors, ReadDivisors(rope, "short_factor"));
  FT_ASSIGN_OR_RETURN(scaling.long_divisors, ReadDivisors(rope, "long_factor"));
  const std::string length = "original_max_position_embeddings";
  if (!from.config.Has(length) && !rope.Has(length)) return from.config.Error(length, "is missing");
  FT_ASSIGN_OR_RETURN(scaling.original_max_positions, ReadOriginalLength(from));
  if (rope.Has("attention_factor")) {
    FT_ASSIGN_OR_RETURN(scaling.attention_factor, RequirePositive(rope, "attention_factor"));
    return scaling;
  }
  const auto original = static_cast<double>(scaling.original_max_positions);
  const double factor = static_cast<double>(from.max_position_embeddings) / original;
  if (factor > 1 && original > 1) scaling.attention_factor = std::sqrt(1 + std::log(factor) / std::log(original));
  return scaling;
}

struct RopeSource {
  const JsonFields& config;
  const std::optional<JsonFields>& rope;
  const char* theta_name;
  double default_theta;
  bool may_be_long;
  int64_t max_position_embeddings;
};

absl::StatusOr<RopeConfig> ReadRopeConfig(const RopeSource& source) {
  const JsonFields& rope = source.rope ? *source.rope : source.config;
  const bool is_inside = source.rope && rope.Has("rope_theta");
  const JsonFields& theta_fields = is_inside ? rope : source.config;
  const std::string theta_name = is_inside ? "rope_theta" : source.theta_name;
  RopeConfig result;
  FT_ASSIGN_OR_RETURN(result.theta, theta_fields.OrDefault<double>(theta_name, source.default_theta));
  if (result.theta <= 1) return theta_fields.Error(theta_name, "expects a number above 1, got ", result.theta);
  if (!source.rope) return result;

  const std::string type_field = rope.Has("rope_type") ? "rope_type" : "type";
  FT_ASSIGN_OR_RETURN(const std::string type, rope.OrDefault<std::string>(type_field, "default"));
  const OriginalLength from{source.config, rope, source.max_position_embeddings};
  if (type == "linear") {
    FT_ASSIGN_OR_RETURN(const double factor, RequirePositive(rope, "factor"));
    result.scaling = LinearScaling{.factor = factor};
  } else if (source.may_be_long && (type == "longrope" || type == "su" || type == "yarn")) {  // old names of it
    FT_ASSIGN_OR_RETURN(result.scaling, ReadLongRope(from));
  } else if (type == "llama3") {
    FT_ASSIGN_OR_RETURN(result.scaling, ReadLlama3(from));
  } else if (type == "yarn") {
    FT_ASSIGN_OR_RETURN(result.scaling, ReadYarn(from));
  } else if (type == "divisors") {
    DivisorScaling scaling;
    FT_ASSIGN_OR_RETURN(scaling.divisors, ReadDivisors(rope, "divisors"));
    result.scaling = std::move(scaling);
  } else if (type != "default") {
    return rope.Error(type_field, "expects default, linear, llama3 or yarn", source.may_be_long ? ", or longrope" : "",
                      ", got ", type);
  }
  return result;
}

// Of all layers: transformers has it beside the configuration's other fields or in the object.
absl::StatusOr<double> ReadRotaryPart(const JsonFields& config, const std::optional<JsonFields>& rope,
                                      const Family& family) {
  const JsonFields& fields = rope && rope->Has("partial_rotary_factor") ? *rope : config;
  FT_ASSIGN_OR_RETURN(const double part, fields.OrDefault<double>("partial_rotary_factor", family.rotary_part));
  if (part != 1 && !family.knows_partial_rotation) {
    return fields.Error("partial_rotary_factor", "expects 1, got ", part);
  }
  if (!(part > 0 && part <= 1)) {
    return fields.Error("partial_rotary_factor", "expects a number above 0 and at most 1, got ", part);
  }
  return part;
}

struct RopeSettings {
  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope;
  double rotary_part = 1;
  int64_t max_positions = 0;
};

absl::StatusOr<RopeSettings> ReadRopeSettings(const JsonFields& config, const Family& family,
                                              int64_t max_position_embeddings, int64_t most_positions) {
  RopeSettings settings = {.max_positions = max_position_embeddings};
  FT_ASSIGN_OR_RETURN(const RopeObjects found, FindRopeObjects(config, family));
  if (family.needs_rope_scaling && !found.full) return config.Error("rope_scaling", "is missing");
  const RopeSource full = {.config = config,
                           .rope = found.full,
                           .theta_name = "rope_theta",
                           .default_theta = family.rope_theta,
                           .may_be_long = family.knows_long_rope,
                           .max_position_embeddings = max_position_embeddings};
  FT_ASSIGN_OR_RETURN(settings.rope, ReadRopeConfig(full));
  FT_ASSIGN_OR_RETURN(settings.rotary_part, ReadRotaryPart(config, found.full, family));
  if (family.sliding_rope_theta) {
    FT_ASSIGN_OR_RETURN(settings.sliding_rope, ReadRopeConfig({.config = config,
                                                               .rope = found.sliding,
                                                               .theta_name = "rope_local_base_freq",
                                                               .default_theta = *family.sliding_rope_theta,
                                                               .may_be_long = false,
                                                               .max_position_embeddings = max_position_embeddings}));
  }
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

// Which layers turn q and k: no_rope_layers has 1 for those that do.
absl::Status ReadLayersWithoutRotation(const JsonFields& fields, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(auto flags, fields.Optional<std::vector<int64_t>>("no_rope_layers"));
  if (!flags) {
    FT_ASSIGN_OR_RETURN(const int64_t interval, fields.OrDefault<int64_t>("no_rope_layer_interval", 4));
    if (interval < 1) return fields.Error("no_rope_layer_interval", "expects an integer above 0, got ", interval);
    flags.emplace();
    for (int64_t layer = 0; layer < config.num_layers; ++layer) flags->push_back((layer + 1) % interval == 0 ? 0 : 1);
  }
  if (static_cast<int64_t>(flags->size()) != config.num_layers) {
    return fields.Error("no_rope_layers", "expects num_hidden_layers = ", config.num_layers, " entries, got ",
                        flags->size());
  }
  for (const int64_t flag : *flags) {
    if (flag != 0 && flag != 1) return fields.Error("no_rope_layers", "expects 0 or 1, got ", flag);
    config.rotates.push_back(flag == 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRotation(const JsonFields& fields, const Family& family, int64_t most_positions, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(RopeSettings rope,
                      ReadRopeSettings(fields, family, config.max_position_embeddings, most_positions));
  config.rope = std::move(rope.rope);
  config.sliding_rope = std::move(rope.sliding_rope);
  config.max_position_embeddings = rope.max_positions;
  if (rope.rotary_part != 1) {
    const auto rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * rope.rotary_part);
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > config.head_dim) {
      return fields.Error("partial_rotary_factor", "expects an even number of head_dim ", config.head_dim,
                          " dimensions from 2 on, got ", rope.rotary_part);
    }
    config.rotary_dim = rotary_dim;
  }
  const int64_t num_pairs = config.rotary_dim.value_or(config.head_dim) / 2;
  if (const auto* divided = std::get_if<DivisorScaling>(&config.rope.scaling)) {
    for (const auto* divisors : {&divided->divisors, &divided->long_divisors}) {
      const auto num_divisors = static_cast<int64_t>(divisors->size());
      if (num_divisors == num_pairs || (divisors == &divided->long_divisors && num_divisors == 0)) continue;
      return fields.Error("rope_scaling", "expects ", num_pairs, " divisors, one per pair of a head, got ",
                          num_divisors);
    }
  }
  if (family.knows_layers_without_rotation) return ReadLayersWithoutRotation(fields, config);
  return absl::OkStatus();
}

}  // namespace foretoken::model
