// SPDX-License-Identifier: Apache-2.0
// Drafters of the demo target that read its hidden states.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/json.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/models/append_tensor.h"
#include "tests/testing/models/test_device.h"
#include "tests/testing/models/tiny_drafters.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

inline proposer::Drafter LoadForDemo(const std::string& method, const std::string& directory) {
  return proposer::LoadDrafter(method, {.model_directory = directory,
                                        .target_directory = SourcePath("deploy/demo/target"),
                                        .device = TestDevice(),
                                        .num_threads = 2,
                                        .kv_cache_mb = 16})
      .value();
}

inline proposer::Drafter DemoEagle3() { return LoadForDemo("eagle3", SourcePath("deploy/demo/eagle3")); }
inline proposer::Drafter DemoMedusa() { return LoadForDemo("medusa", SourcePath("deploy/demo/medusa")); }
inline proposer::Drafter DemoMlpSpeculator() {
  return LoadForDemo("mlp_speculator", SourcePath("deploy/demo/mlp_speculator"));
}

// The EAGLE-3 head with a mask state that nobody trained: it guesses a block, and is right about the first token.
inline proposer::Drafter DemoPEagle() {
  constexpr int64_t kWidth = 3 * 256;
  const TempDir dir;
  dir.CopyFrom(SourcePath("deploy/demo/eagle3"));
  AppendTensor(dir.path(), "mask_hidden", {1, 1, kWidth}, std::string(2 * kWidth, '\0'));
  nlohmann::json config = base::ReadJson(dir.path() + "/config.json").value();
  config["mask_token_id"] = 0;
  dir.Write("config.json", config.dump());
  return LoadForDemo("eagle3", dir.path());
}

// Drafters of random values, for formats that the demo has no trained head of. They guess next to nothing right.
inline constexpr DrafterSizes kDemoSizes = {.hidden = 256, .vocabulary = 4096};

inline proposer::Drafter LoadRandomForDemo(const std::string& method, const TinyDrafter& drafter) {
  const TempDir dir;
  drafter.Write(dir);
  return LoadForDemo(method, dir.path());
}
inline proposer::Drafter RandomDflash() {
  return LoadRandomForDemo("dflash", MakeTinyDflash({.window = 20, .has_sinks = true, .sizes = kDemoSizes}));
}
inline proposer::Drafter RandomDspark() {
  return LoadRandomForDemo("dflash",
                           MakeTinyDflash({.markov_rank = 16, .markov_matrix = "joint_proj", .sizes = kDemoSizes}));
}
inline proposer::Drafter RandomEagle() { return LoadRandomForDemo("eagle", MakeTinyEagle({.sizes = kDemoSizes})); }

}  // namespace foretoken::testing
