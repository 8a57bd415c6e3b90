// SPDX-License-Identifier: Apache-2.0
// Drafters of the demo target that read its hidden states.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/json.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/models/append_tensor.h"
#include "tests/testing/models/test_device.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

inline proposer::Drafter LoadEagle3For(const std::string& head) {
  return proposer::LoadDrafter("eagle3", {.model_directory = head,
                                          .target_directory = SourcePath("deploy/demo/target"),
                                          .device = TestDevice(),
                                          .num_threads = 2,
                                          .kv_cache_mb = 16})
      .value();
}

inline proposer::Drafter DemoEagle3() { return LoadEagle3For(SourcePath("deploy/demo/eagle3")); }

// The same head with a mask state that nobody trained: it guesses a block, and is right about the first token.
inline proposer::Drafter DemoPEagle() {
  constexpr int64_t kWidth = 3 * 256;
  const TempDir dir;
  dir.CopyFrom(SourcePath("deploy/demo/eagle3"));
  AppendTensor(dir.path(), "mask_hidden", {1, 1, kWidth}, std::string(2 * kWidth, '\0'));
  nlohmann::json config = base::ReadJson(dir.path() + "/config.json").value();
  config["mask_token_id"] = 0;
  dir.Write("config.json", config.dump());
  return LoadEagle3For(dir.path());
}

}  // namespace foretoken::testing
