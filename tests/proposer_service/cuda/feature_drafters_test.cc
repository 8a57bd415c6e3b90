// SPDX-License-Identifier: Apache-2.0
// Drafters that read hidden states, on the CUDA backend. They run the same code as on the CPU and must compute the same
// logits but for rounding. If this test fails, a drafter on a GPU proposes worse tokens than on a CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "proposer_service/features/load_drafter.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

std::vector<testing::Row> LogitsOn(const std::string& device, const std::string& method, const std::string& model,
                                   const std::string& target) {
  const Drafter drafter =
      LoadDrafter(
          method,
          {.model_directory = model, .target_directory = target, .device = device, .num_threads = 2, .kv_cache_mb = 1})
          .value();
  return testing::RunDraftChain(*drafter.model, {3, 1000, 41, 7, 90},
                                testing::RandomFeatures(3, testing::kTinyHidden, 9));
}

TEST(CudaFeatureDrafters, ComputeWhatTheCpuComputes) {
  const testing::TinyTarget target;
  const std::vector<std::pair<std::string, testing::TinyDrafter>> kDrafters = {
      {"eagle3", testing::MakeTinyEagle3({.norm_before_residual = true, .norm_output = true})},
      {"eagle3", testing::MakeTinyPEagle({.fc_norm = true})},
      {"dflash", testing::MakeTinyDflash({.markov_rank = 16})},
      {"dflash", testing::MakeTinyDflash({.is_causal = true, .has_own_ends = true})},
      {"dflash", testing::MakeTinyDflash({.window = 2, .has_sinks = true})},
      {"dflash", testing::MakeTinyDflash({.markov_rank = 16, .markov_matrix = "gate_proj"})},
      {"dflash", testing::MakeTinyDflash({.markov_rank = 16, .markov_matrix = "joint_proj"})},
      {"eagle", testing::MakeTinyEagle({.has_norms = true})},
      {"mlp_speculator", testing::MakeTinyMlp({})},
      {"medusa", testing::MakeTinyMedusa({})}};
  for (const auto& [method, files] : kDrafters) {
    const testing::TempDir dir;
    files.Write(dir);
    const std::vector<testing::Row> cuda = LogitsOn("cuda", method, dir.path(), target.directory());
    const std::vector<testing::Row> cpu = LogitsOn("cpu", method, dir.path(), target.directory());
    ASSERT_EQ(cuda.size(), cpu.size());
    for (size_t row = 0; row < cpu.size(); ++row) {
      float size = 0;
      for (const float logit : cpu[row]) size = std::isinf(logit) ? size : std::max(size, std::abs(logit));
      for (size_t id = 0; id < cpu[row].size(); ++id) {
        ASSERT_EQ(std::isinf(cuda[row][id]), std::isinf(cpu[row][id])) << method << " " << id;
        if (std::isinf(cpu[row][id])) continue;
        // Up to ten roundings to bf16 that may differ, each of a relative 2^-9.
        ASSERT_NEAR(cuda[row][id], cpu[row][id], 10 * 0x1p-9f * size) << method;
      }
    }
  }
}

}  // namespace
}  // namespace foretoken::proposer
