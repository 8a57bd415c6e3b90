// SPDX-License-Identifier: Apache-2.0
// Trees of drafters that predict a bounded number of steps, when the features of some committed tokens come late. If
// this test fails, rows of such trees take the outputs of other depths, and the tree grows deeper than the drafter can
// see.
#include <algorithm>
#include <memory>
#include <ostream>
#include <vector>

#include "gtest/gtest.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

constexpr size_t kContext = 20;

struct LateKind {
  const char* name;
  const char* method;
  testing::TinyDrafter (*make)();
};

std::ostream& operator<<(std::ostream& out, const LateKind& kind) { return out << kind.name; }

class LateFeaturesTest : public ::testing::TestWithParam<LateKind> {
 protected:
  LateFeaturesTest() {
    const testing::TempDir dir;
    GetParam().make().Write(dir);
    model_ = std::move(LoadDrafter(GetParam().method, {.model_directory = dir.path(),
                                                       .target_directory = target_.directory(),
                                                       .num_threads = 2,
                                                       .kv_cache_mb = 1})
                           .value()
                           .model);
  }

  static std::vector<uint16_t> FeaturesOf(size_t first, size_t end) {
    std::vector<uint16_t> values;
    for (size_t position = first; position < end; ++position) {
      const auto one = testing::RandomFeatures(1, testing::kTinyHidden, static_cast<uint32_t>(position)).front();
      values.insert(values.end(), one.begin(), one.end());
    }
    return values;
  }

  // The tokens of the first commit; one more token follows in the second. The drafter must still see one step further.
  int32_t num_first() const { return std::min(2, model_->limits().max_steps - 2); }

  // The tree after two commits along it. The features of the second one's row have not come yet.
  speculation::TokenTree TreeAfterTwoCommits(bool has_first_features) {
    DraftForest forest(*model_, {.num_children = 1, .max_children = 1, .min_path_chance = 0, .learns_chances = false});
    const DraftForest::SessionId id = forest.Open({.seed = 1, .temperature = 0});
    std::vector<int32_t> context;
    for (size_t i = 0; i < kContext; ++i) context.push_back(static_cast<int32_t>(37 * i + 11));
    forest.Append(id, context);
    forest.AppendFeatures(id, 0, FeaturesOf(0, kContext - 1));
    forest.Want(id, {.node_budget = 32});
    for (int pass = 0; pass < num_first() + 2; ++pass) forest.Grow();  // the root, and the rows of both commits
    const DraftForest::Session& session = forest.Find(id);
    std::vector<int32_t> first, second;
    for (const auto& node : session.tree.Snapshot(session.position(), num_first() + 1).nodes) {
      (first.size() < static_cast<size_t>(num_first()) ? first : second).push_back(node.token_id);
    }
    forest.Append(id, first);
    forest.Append(id, second);
    if (has_first_features)
      forest.AppendFeatures(id, kContext - 1, FeaturesOf(kContext - 1, kContext - 1 + first.size()));
    forest.Want(id, {.node_budget = 32});
    while (!forest.Grow().empty()) forest.CheckIntegrity();
    EXPECT_EQ(session.num_provisional(), has_first_features ? 1 : num_first() + 1);
    return session.tree.Snapshot(session.position(), 32);
  }

  testing::TinyTarget target_;
  std::unique_ptr<DraftModel> model_;
};

TEST_P(LateFeaturesTest, StepsCountFromTheRootThatTheTreeGrewFrom) {
  const speculation::TokenTree without = TreeAfterTwoCommits(/*has_first_features=*/false);
  EXPECT_EQ(without.num_nodes(), model_->limits().max_steps - num_first() - 1) << "a chain";
  EXPECT_EQ(TreeAfterTwoCommits(/*has_first_features=*/true).nodes, without.nodes);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LateFeaturesTest,
    ::testing::Values(
        LateKind{"PEagle", "eagle3", [] { return testing::MakeTinyPEagle({}); }},
        LateKind{"DFlash", "dflash", [] { return testing::MakeTinyDflash({.block_size = 7}); }},
        LateKind{"DSpark", "dflash", [] { return testing::MakeTinyDflash({.markov_rank = 16}); }},
        LateKind{"RecurrentDSpark", "dflash",
                 [] {
                   return testing::MakeTinyDflash(
                       {.window = 9, .has_sinks = true, .markov_rank = 16, .markov_matrix = "joint_proj"});
                 }},
        LateKind{"Medusa", "medusa", [] { return testing::MakeTinyMedusa({}); }},
        LateKind{"MlpSpeculator", "mlp_speculator", [] { return testing::MakeTinyMlp({.n_predict = 5}); }}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace foretoken::proposer
