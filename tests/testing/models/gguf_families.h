// SPDX-License-Identifier: Apache-2.0
// The small models of tests/cases/models whose families GGUF has, each with the values that GGUF takes for granted.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

struct GgufFamily {
  std::string model;
  nlohmann::json changes = nlohmann::json::object();  // of config.json
  // How far a twin's logits may lie apart: frequencies that are stored in single precision round otherwise. 0: the same
  // bits.
  float most_apart = 0;
};

inline std::vector<GgufFamily> GgufFamilies() {
  const nlohmann::json scale_of_head = {{"query_pre_attn_scalar", 32}};
  return {{"mixtral"},
          {"qwen3-moe"},
          {"gemma2", scale_of_head},
          {"gemma3", scale_of_head},
          {"phi3"},
          {.model = "phi3-longrope", .most_apart = 1e-2f},
          {"granite"},
          {"granite-bias"},
          {"smollm3"},
          {"olmo2"},
          {"glm4-moe"},
          {"glm4-moe-plain"},
          {"gpt-oss", {{"swiglu_limit", 7.0}}}};
}

// The family's model as a directory.
struct GgufFamilyDirectory {
  TempDir dir;
  explicit GgufFamilyDirectory(const GgufFamily& family) {
    dir.CopyFrom(SourcePath("tests/cases/models/" + family.model));
    nlohmann::json config = base::ReadJson(dir.path() + "/config.json").value();
    config.update(family.changes);
    dir.Write("config.json", config.dump());
  }
  const std::string& path() const { return dir.path(); }
};

}  // namespace foretoken::testing
