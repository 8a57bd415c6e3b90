// SPDX-License-Identifier: Apache-2.0
// Lets other programs compare drafters with ours.
//
//   dump_drafter target FOLDER                       writes a small random target, without layers, to the folder
//   dump_drafter logits METHOD DRAFTER TARGET < CASE > LOGITS
//
// CASE is {"token_ids": [...], "features": [[...], ...]}: a chain of rows, of which the first ones have these features
// and each other one the output of the row before. LOGITS is a JSON list for each row; minus infinity is null.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "nlohmann/json.hpp"
#include "proposer_service/features/load_drafter.h"
#include "spdlog/spdlog.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken {
namespace {

int WriteTarget(const std::string& folder) {
  const testing::TinyTarget target;
  std::filesystem::copy(target.directory(), folder, std::filesystem::copy_options::recursive);
  return 0;
}

int WriteLogits(const std::string& method, const std::string& model, const std::string& target) {
  const auto input = nlohmann::json::parse(std::cin);
  std::vector<std::vector<uint16_t>> features;
  for (const std::vector<float> row : input["features"]) {
    std::vector<uint16_t>& bits = features.emplace_back();
    for (const float value : row) bits.push_back(kernels::Bf16FromFloat(value));
  }
  const absl::StatusOr<proposer::Drafter> drafter = proposer::LoadDrafter(
      method, {.model_directory = model, .target_directory = target, .num_threads = 2, .kv_cache_mb = 1});
  if (!drafter.ok()) {
    std::cerr << drafter.status() << "\n";
    return 1;
  }
  auto rows = nlohmann::json::array();
  for (const testing::Row& row : testing::RunDraftChain(*drafter->model, input["token_ids"], features)) {
    nlohmann::json& logits = rows.emplace_back(nlohmann::json::array());
    for (const float logit : row) logits.push_back(std::isfinite(logit) ? nlohmann::json(logit) : nlohmann::json());
  }
  std::cout << rows.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);  // it would write to the standard output
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "target") return foretoken::WriteTarget(arguments[1]);
  if (arguments.size() == 4 && arguments[0] == "logits") {
    return foretoken::WriteLogits(arguments[1], arguments[2], arguments[3]);
  }
  std::cerr << "dump_drafter target FOLDER, or dump_drafter logits METHOD DRAFTER TARGET < CASE\n";
  return 2;
}
