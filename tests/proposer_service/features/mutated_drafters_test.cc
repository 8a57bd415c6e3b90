// SPDX-License-Identifier: Apache-2.0
// Files of drafters with one wrong value are read or refused by name, and none of them ends the process. If this test
// fails, a damaged download or a hostile file stops a proposer.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::RandomValues;
using testing::TinyDrafter;

struct Kind {
  std::string method;
  TinyDrafter (*make)();
};
const Kind kKinds[] = {
    {"eagle3", [] { return testing::MakeTinyEagle3({.fc_norm = true}); }},
    {"eagle3", [] { return testing::MakeTinyEagle3({.layout = testing::Layout::kModelOpt, .norm_before_fc = true}); }},
    {"eagle3", [] { return testing::MakeTinyEagle3({.layout = testing::Layout::kSpeculators, .has_qk_norm = true}); }},
    {"eagle3", [] { return testing::MakeTinyPEagle({.norm_before_fc = true}); }},
    {"dflash", [] { return testing::MakeTinyDflash({.markov_rank = 16, .has_own_ends = true}); }},
    {"dflash", [] { return testing::MakeTinyDflash({.layout = testing::Layout::kSpeculators}); }},
    {"eagle", [] { return testing::MakeTinyEagle({}); }},
    {"mlp_speculator", [] { return testing::MakeTinyMlp({.is_tied = true}); }},
    {"medusa", [] { return testing::MakeTinyMedusa({.has_first_names = false, .num_listed = 100}); }},
};

// Replaces one value by another, somewhere below.
void ReplaceValue(json& object, RandomValues& random) {
  static const std::vector<json> kValues = {
      0, -1, 1, 2, 3, 1e300, 1e18, INT64_MAX, "x", json::array({-1, 2}), true, nullptr, json::object()};
  auto at = object.begin();
  std::advance(at, random.Below(static_cast<int32_t>(object.size())));
  if (at->is_structured() && !at->empty() && random.Coin(0.7)) return ReplaceValue(*at, random);
  *at = kValues[random.Below(static_cast<int32_t>(kValues.size()))];
}

void ChangeTensors(TinyDrafter& drafter, RandomValues& random) {
  auto at = drafter.tensors.begin();
  std::advance(at, random.Below(static_cast<int32_t>(drafter.tensors.size())));
  testing::TinyTensor& tensor = at->second;
  const double choice = random.Uniform();
  if (choice < 0.25) {
    drafter.tensors.erase(at);
  } else if (choice < 0.5) {
    tensor.dtype = random.Coin(0.5) ? "F8_E4M3" : "I32";
  } else if (choice < 0.75) {
    for (char& byte : tensor.bytes) byte = static_cast<char>(random.Below(256));
  } else {
    std::swap(tensor.shape.front(), tensor.shape.back());
    tensor.shape.push_back(1);
  }
}

std::string DamagedBytes(std::string bytes, RandomValues& random) {
  constexpr int32_t kHeader = 600;
  if (random.Coin(0.3)) return bytes.substr(0, static_cast<size_t>(random.Below(static_cast<int32_t>(bytes.size()))));
  bytes[static_cast<size_t>(random.Below(kHeader))] = static_cast<char>(random.Below(256));
  return bytes;
}

// Changes each kind of drafter so many times.
void ExpectReadOrRefused(int num_mutations, uint32_t seed) {
  const testing::TinyTarget target;
  RandomValues random(seed);
  int num_refused = 0;
  for (const Kind& kind : kKinds) {
    for (int i = 0; i < num_mutations; ++i) {
      TinyDrafter drafter = kind.make();
      const testing::TempDir dir;
      if (i % 3 == 0) ReplaceValue(drafter.config, random);
      if (i % 3 == 1) ChangeTensors(drafter, random);
      drafter.Write(dir);
      if (i % 3 == 2) dir.Write(drafter.file_name, DamagedBytes(drafter.TensorBytes(), random));
      const absl::StatusOr<Drafter> loaded = LoadDrafter(
          kind.method,
          {.model_directory = dir.path(), .target_directory = target.directory(), .num_threads = 1, .kv_cache_mb = 1});
      if (loaded.ok()) continue;
      ++num_refused;
      EXPECT_THAT(std::string(loaded.status().message()), AnyOf(HasSubstr(dir.path()), HasSubstr("S_")));
    }
  }
  EXPECT_GT(num_refused, static_cast<int>(std::size(kKinds)) * num_mutations / 3);
}

TEST(MutatedDrafters, AreReadOrRefusedByName) { ExpectReadOrRefused(40, 7); }

TEST(MutatedDraftersLong, TenThousandAreReadOrRefusedByName) { ExpectReadOrRefused(1700, 8); }

}  // namespace
}  // namespace foretoken::proposer
