// SPDX-License-Identifier: Apache-2.0
// Drafters whose file has no LM head take the target's, with what the target makes of its logits. If this test fails,
// such a drafter states wrong chances for a target that scales or caps its logits.
#include <cmath>

#include "common/base/json.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "proposer_service/features/parts/draft_head.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using testing::TinyDrafter;

// The logits of one row of the drafter, for a target with these keys in its configuration.
testing::Row RowOf(const std::string& method, const TinyDrafter& drafter, const nlohmann::json& keys) {
  const testing::TinyTarget target;
  const testing::TempDir scaled, dir;
  scaled.CopyFrom(target.directory());
  nlohmann::json config = base::ReadJson(scaled.path() + "/config.json").value();
  config.update(keys);
  scaled.Write("config.json", config.dump());
  drafter.Write(dir);
  const absl::StatusOr<Drafter> loaded = LoadDrafter(
      method, {.model_directory = dir.path(), .target_directory = scaled.path(), .num_threads = 1, .kv_cache_mb = 1});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return testing::RunDraftChain(*loaded->model, {3}, testing::RandomFeatures(1, testing::kTinyHidden, 9))[0];
}

// A target that divides its logits.
testing::Row RowOf(const std::string& method, const TinyDrafter& drafter, double logits_scaling) {
  return RowOf(
      method, drafter,
      nlohmann::json{
          {"architectures", {"GraniteForCausalLM"}}, {"model_type", "granite"}, {"logits_scaling", logits_scaling}});
}

struct BorrowingKind {
  const char* method;
  TinyDrafter drafter;
  bool has_own_head = false;
};

TEST(BorrowedHead, HasTheTargetsScale) {
  const BorrowingKind kKinds[] = {{"eagle3", testing::MakeTinyEagle3({.has_head = false})},
                                  {"eagle3", testing::MakeTinyPEagle({.has_head = false})},
                                  {"eagle", testing::MakeTinyEagle({})},
                                  {"dflash", testing::MakeTinyDflash({})},
                                  {"medusa", testing::MakeTinyMedusa({.num_lm_heads = 0})},
                                  {"eagle3", testing::MakeTinyEagle3({}), true},
                                  {"dflash", testing::MakeTinyDflash({.has_own_ends = true}), true},
                                  {"medusa", testing::MakeTinyMedusa({}), true}};
  for (const BorrowingKind& kind : kKinds) {
    const testing::Row plain = RowOf(kind.method, kind.drafter, 1), scaled = RowOf(kind.method, kind.drafter, 4);
    ASSERT_EQ(plain.size(), scaled.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      if (std::isfinite(plain[i])) {
        ASSERT_EQ(scaled[i], kind.has_own_head ? plain[i] : plain[i] / 4) << kind.method << ", id " << i;
      }
    }
  }
}

// A Markov head's bias belongs to the drafter. It is added to what the target's form has made.
TEST(BorrowedHead, LeavesADraftersOwnBiasAsItIs) {
  const auto row = [](double logits_scaling, bool has_bias) {
    TinyDrafter drafter = testing::MakeTinyDflash({.markov_rank = 16});
    std::string& bytes = drafter.tensors.at("markov_head.markov_w2.weight").bytes;
    if (!has_bias) bytes.assign(bytes.size(), '\0');
    return RowOf("dflash", drafter, logits_scaling);
  };
  const testing::Row plain = row(4, false), biased = row(4, true), unscaled = row(1, false), both = row(1, true);
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(biased[i] - plain[i], both[i] - unscaled[i], 1e-5) << i;
}

TEST(BorrowedHead, HasTheTargetsCap) {
  const LogitForm form = FormOfTarget({.logit_multiplier = 0.5, .logit_cap = 30}, 3);
  EXPECT_EQ(form.scale, 1.5f);
  EXPECT_EQ(form.cap, 30.0f);
  const auto row = [](const nlohmann::json& cap) {
    return RowOf(
        "eagle", testing::MakeTinyEagle({}),
        nlohmann::json{
            {"architectures", {"Gemma2ForCausalLM"}}, {"model_type", "gemma2"}, {"final_logit_softcapping", cap}});
  };
  const testing::Row plain = row(nullptr), capped = row(0.5);
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(capped[i], 0.5 * std::tanh(plain[i] / 0.5), 1e-5) << i;
}

}  // namespace
}  // namespace foretoken::proposer
