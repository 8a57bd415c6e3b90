// SPDX-License-Identifier: Apache-2.0
#include "common/model/generation_config.h"

#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/model/json_fields.h"

namespace foretoken::model {

absl::StatusOr<GenerationConfig> ParseGenerationConfig(absl::string_view text, absl::string_view source) {
  FT_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Parse(text, source));
  GenerationConfig config;
  FT_ASSIGN_OR_RETURN(config.eos_token_ids, fields.OrDefault("eos_token_id", std::vector<int64_t>()));
  for (const int64_t id : config.eos_token_ids) {
    if (id < 0) return fields.Error("eos_token_id", "expects ids of at least 0, got ", id);
  }
  FT_ASSIGN_OR_RETURN(config.temperature, fields.Optional<double>("temperature"));
  if (config.temperature && *config.temperature < 0)
    return fields.Error("temperature", "expects at least 0, got ", *config.temperature);
  FT_ASSIGN_OR_RETURN(const bool do_sample, fields.OrDefault<bool>("do_sample", true));
  if (!do_sample) config.temperature = 0;
  FT_ASSIGN_OR_RETURN(config.top_k, fields.Optional<int64_t>("top_k"));
  if (config.top_k && *config.top_k < 0) return fields.Error("top_k", "expects at least 0, got ", *config.top_k);
  FT_ASSIGN_OR_RETURN(config.top_p, fields.Optional<double>("top_p"));
  if (config.top_p && (*config.top_p <= 0 || *config.top_p > 1)) {
    return fields.Error("top_p", "expects above 0 and at most 1, got ", *config.top_p);
  }
  FT_ASSIGN_OR_RETURN(config.min_p, fields.Optional<double>("min_p"));
  if (config.min_p && (*config.min_p < 0 || *config.min_p > 1)) {
    return fields.Error("min_p", "expects from 0 to 1, got ", *config.min_p);
  }
  FT_ASSIGN_OR_RETURN(config.repetition_penalty, fields.Optional<double>("repetition_penalty"));
  if (config.repetition_penalty && *config.repetition_penalty <= 0) {
    return fields.Error("repetition_penalty", "expects above 0, got ", *config.repetition_penalty);
  }
  return config;
}

absl::StatusOr<GenerationConfig> LoadGenerationConfig(const std::string& directory) {
  const std::string path = directory + "/generation_config.json";
  const absl::StatusOr<std::string> text = base::ReadFile(path);
  if (absl::IsNotFound(text.status())) return GenerationConfig();
  if (!text.ok()) return text.status();
  return ParseGenerationConfig(*text, path);
}

}  // namespace foretoken::model
