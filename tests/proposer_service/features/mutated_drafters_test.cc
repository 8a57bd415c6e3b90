// SPDX-License-Identifier: Apache-2.0
// Files of drafters with one wrong value are refused by its name, or read and run. None of them ends the process. If
// this test fails, a damaged download or a hostile file stops a proposer.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using nlohmann::json;
using testing::RandomValues;
using testing::TinyDrafter;

struct MutatedKind {
  std::string method;
  TinyDrafter (*make)();
};
const MutatedKind kKinds[] = {
    {"eagle3", [] { return testing::MakeTinyEagle3({.fc_norm = true}); }},
    {"eagle3", [] { return testing::MakeTinyEagle3({.layout = testing::Layout::kModelOpt, .norm_before_fc = true}); }},
    {"eagle3", [] { return testing::MakeTinyEagle3({.layout = testing::Layout::kSpeculators, .has_qk_norm = true}); }},
    {"eagle3", [] { return testing::MakeTinyPEagle({.norm_before_fc = true}); }},
    {"dflash", [] { return testing::MakeTinyDflash({.markov_rank = 16, .has_own_ends = true}); }},
    {"dflash", [] { return testing::MakeTinyDflash({.layout = testing::Layout::kSpeculators, .window = 5}); }},
    {"dflash",
     [] {
       return testing::MakeTinyDflash(
           {.window = 9, .uses_swa = true, .has_sinks = true, .markov_rank = 16, .markov_matrix = "joint_proj"});
     }},
    {"eagle", [] { return testing::MakeTinyEagle({.has_norms = true}); }},
    {"mlp_speculator", [] { return testing::MakeTinyMlp({.is_tied = true}); }},
    {"medusa", [] { return testing::MakeTinyMedusa({.has_first_names = false, .num_listed = 100}); }},
};

// Replaces one value by another, somewhere below. Returns the keys above it, and its own.
std::vector<std::string> ReplaceValue(json& object, RandomValues& random) {
  static const std::vector<json> kValues = {
      0, -1, 1, 2, 3, 1e300, 1e18, INT64_MAX, "x", json::array({-1, 2}), true, nullptr, json::object()};
  auto at = object.begin();
  std::advance(at, random.Below(static_cast<int32_t>(object.size())));
  std::vector<std::string> keys;
  if (at->is_structured() && !at->empty() && random.Coin(0.7)) {
    keys = ReplaceValue(*at, random);
  } else {
    *at = kValues[random.Below(static_cast<int32_t>(kValues.size()))];
  }
  if (object.is_object()) keys.push_back(at.key());
  return keys;
}

// Returns the tensor's name.
std::string ChangeTensors(TinyDrafter& drafter, RandomValues& random) {
  auto at = drafter.tensors.begin();
  std::advance(at, random.Below(static_cast<int32_t>(drafter.tensors.size())));
  testing::TinyTensor& tensor = at->second;
  const std::string name = at->first;
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
  return name;
}

std::string DamagedBytes(std::string bytes, RandomValues& random) {
  constexpr int32_t kHeader = 600;
  if (random.Coin(0.3)) return bytes.substr(0, static_cast<size_t>(random.Below(static_cast<int32_t>(bytes.size()))));
  bytes[static_cast<size_t>(random.Below(kHeader))] = static_cast<char>(random.Below(256));
  return bytes;
}

// The name of a tensor without what formats write before it.
std::string Shortened(absl::string_view name) {
  for (const char* const prefix : {"speculator.", "midlayer.", "layers.0."}) absl::ConsumePrefix(&name, prefix);
  return std::string(name);
}

// What a refusal of the changed value may name. A size of the configuration shows in the tensors that do not fit it,
// and an object in the fields that it lacks.
std::vector<std::string> NamesOf(int kind, TinyDrafter& drafter, RandomValues& random) {
  if (kind == 2) return {drafter.file_name, "tensor ", "got also "};
  if (kind == 0) {
    std::vector<std::string> names = ReplaceValue(drafter.config, random);
    names.insert(names.end(), {"tensor ", "got also ", " is missing"});
    return names;
  }
  const std::string name = Shortened(ChangeTensors(drafter, random));
  // Without one of two tensors that belong together, the other is the one that is not read, or does not fit.
  const std::string other = name == "token_map"                      ? "lm_heads.0.weight"
                            : name == "markov_head.markov_w1.weight" ? "confidence_head.proj.weight"
                                                                     : name;
  return {name, "got also ", other};
}

// One row of a context, and one of a tree if the drafter predicts so far.
void ExpectRuns(DraftModel& model) {
  std::vector<int32_t> chain = {3};
  if (model.limits().max_steps > 1) chain.push_back(5);
  const auto rows = testing::RunDraftChain(model, chain, testing::RandomFeatures(1, model.limits().feature_width, 9));
  ASSERT_EQ(rows.size(), chain.size());
  for (const testing::Row& row : rows) EXPECT_EQ(row.size(), static_cast<size_t>(model.limits().vocab_size));
}

// Changes each kind of drafter so many times.
void ExpectReadOrRefused(int num_mutations, uint32_t seed) {
  const testing::TinyTarget target;
  RandomValues random(seed);
  int num_refused = 0;
  for (const MutatedKind& kind : kKinds) {
    for (int i = 0; i < num_mutations; ++i) {
      TinyDrafter drafter = kind.make();
      const testing::TempDir dir;
      const std::vector<std::string> names = NamesOf(i % 3, drafter, random);
      drafter.Write(dir);
      if (i % 3 == 2) dir.Write(drafter.file_name, DamagedBytes(drafter.TensorBytes(), random));
      absl::StatusOr<Drafter> loaded = LoadDrafter(
          kind.method,
          {.model_directory = dir.path(), .target_directory = target.directory(), .num_threads = 1, .kv_cache_mb = 1});
      if (loaded.ok()) {
        ExpectRuns(*loaded->model);
        continue;
      }
      ++num_refused;
      const std::string refusal(loaded.status().message());
      const auto is_named = [&](const std::string& name) { return absl::StrContains(refusal, name); };
      EXPECT_TRUE(std::ranges::any_of(names, is_named)) << absl::StrJoin(names, " ") << ": " << refusal;
    }
  }
  EXPECT_GT(num_refused, static_cast<int>(std::size(kKinds)) * num_mutations / 3);
}

TEST(MutatedDrafters, AreReadOrRefusedByName) { ExpectReadOrRefused(40, 7); }

TEST(MutatedDraftersLong, TenThousandAreReadOrRefusedByName) { ExpectReadOrRefused(1700, 8); }

}  // namespace
}  // namespace foretoken::proposer
