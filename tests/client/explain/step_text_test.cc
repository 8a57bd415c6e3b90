// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken explain` shows a step's tree, outcomes or times wrongly.
#include "client/explain/step_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_split.h"
#include "client/explain/step_outcome.h"
#include "client/quoted.h"
#include "tests/testing/step_reports.h"

namespace foretoken::client {
namespace {

using testing::BranchingReport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeReport;
using ::testing::Not;
using enum NodeOutcome;

// The text of each token is the character with the token's id.
TokenTexts Letters() {
  std::map<uint32_t, std::string> bytes;
  for (uint32_t id = 1; id < 127; ++id) bytes[id] = std::string(1, static_cast<char>(id));
  return TokenTexts(bytes);
}

TEST(NodeOutcomes, CoverEveryNode) {
  EXPECT_THAT(NodeOutcomes(BranchingReport()),
              ElementsAre(kAccepted, kNoRow, kAccepted, kRejected, kRejected, kMissed, kNotReached, kNoRow));
  EXPECT_THAT(NodeOutcomes(MakeReport(1, 5, "a", {{'a', -1, .5f, .5f, 1, false}, {'b', -1, .5f, .5f}})),
              ElementsAre(kMissed, kRejected));
}

TEST(NodeOutcomes, NoNodeIsMissedIfTheSampleEndedOnItsPath) {
  EXPECT_THAT(NodeOutcomes(MakeReport(1, 5, "a", {{'a', -1, .5f, .5f}, {'a', 0, .5f, .2f, 1, false}}, {0})),
              ElementsAre(kAccepted, kNoRow));
  EXPECT_EQ(BonusToken(MakeReport(1, 5, "a", {{'a', -1, .5f, .5f}}, {0})), std::nullopt);
  EXPECT_EQ(BonusToken(BranchingReport()), 'z');
}

TEST(StepText, RatesIncludeTheTimeBetweenSteps) {
  foretoken::v1::StepReport report = BranchingReport();
  EXPECT_THAT(StepText(report, Letters(), {}), HasSubstr("560 tokens/s expected, 250 without trees"));
  report.mutable_batch()->set_between_ms(5);  // in addition to 5 ms with trees, and 4 ms without
  EXPECT_THAT(StepText(report, Letters(), {}), HasSubstr("280 tokens/s expected, 111 without trees"));
}

TEST(StepText, DrawsAStep) {
  EXPECT_EQ(StepText(BranchingReport(), Letters(), {}),
            R"(step 12 at 341 · 9 rows of 1 sequence · 5.00 ms, predicted 5.00 · host 0.25 · waited 0.40 · curious
  ngram 5 nodes · draft 4 nodes, 2 tokens late
  5 of 8 nodes planned: 560 tokens/s expected, 250 without trees
  ├─ ✓ "a"                                                0.800 → 0.750  ngram draft
  │  ├─ ✓ "b"                                             0.600 → 0.500  draft
  │  │  ├─ ✗ "c"                                          0.300 → 0.200  draft
  │  │  └─ ! "z"                                          0.120 → 0.100  draft
  │  └─ ✗ "x"                                             0.200 → 0.250  ngram
  │     ○ "y"                                             0.100 → 0.100  ngram
  └─ · "q"                                                0.100 → 0.050  ngram
     · "z"                                                0.050 → 0.020  ngram
  emitted 3, expected 2.80: "ab" + "z"
)");
}

TEST(StepText, TellsWhichFeaturesADrafterHadToPredict) {
  foretoken::v1::StepReport report = BranchingReport();
  report.mutable_proposers(0)->set_num_predicted_features(1);
  report.mutable_proposers(1)->set_num_predicted_features(3);
  EXPECT_THAT(StepText(report, Letters(), {}),
              HasSubstr("  ngram 5 nodes, 1 feature predicted · draft 4 nodes, 2 tokens late, 3 features predicted\n"));
}

TEST(StepText, ShowsTheLikeliestNodesWithoutARow) {
  const std::string one = StepText(BranchingReport(), Letters(), {.num_unplanned_nodes = 1});
  EXPECT_THAT(one, HasSubstr("  └─ · \"q\""));
  EXPECT_THAT(one, HasSubstr("\n  … 1 more had no row, the likeliest 0.020\n"));
  const std::string none = StepText(BranchingReport(), Letters(), {.num_unplanned_nodes = 0});
  EXPECT_THAT(none, HasSubstr("\n  ✓ \"a\""));  // the only child shown
  EXPECT_THAT(none, HasSubstr("! \"z\""));      // a missed node is always shown
  EXPECT_THAT(none, HasSubstr("\n  … 2 more had no row, the likeliest 0.050\n"));
}

TEST(StepText, ColoursOutcomes) {
  const std::string text = StepText(BranchingReport(), Letters(), {.color = true});
  EXPECT_THAT(text, HasSubstr("\x1b[1mstep 12 at 341"));
  EXPECT_THAT(text, HasSubstr("├─ \x1b[32m✓ \"a\"\x1b[0m"));
  EXPECT_THAT(text, HasSubstr("\x1b[31m✗ \"x\"\x1b[0m"));
  EXPECT_THAT(StepText(BranchingReport(), Letters(), {}), Not(HasSubstr("\x1b")));
}

TEST(StepText, StepsWithoutATreeAndPromptStepsAreShort) {
  foretoken::v1::StepReport lost = MakeReport(3, 9, "a");
  lost.set_num_lost(2);
  EXPECT_EQ(StepText(lost, Letters(), {}), R"((2 steps lost)
step 3 at 9 · 1 row of 1 sequence · 5.00 ms, predicted 5.00 · host 0.25
  no guesses
  emitted 1, expected 1.00: "a"
)");
  foretoken::v1::StepReport prompt = MakeReport(3, 900, "");
  prompt.set_num_context_rows(64);
  EXPECT_EQ(StepText(prompt, Letters(), {}),
            "step 3 at 900 · 1 row of 1 sequence · 5.00 ms, predicted 5.00 · host 0.25\n  64 tokens of the prompt\n");
}

TEST(StepText, StaysReadableForAnyTree) {
  // A comb: forty levels, a sibling beside every node, and long tokens of control characters.
  foretoken::v1::StepReport report = MakeReport(1, 9, std::string(40, 1));
  testing::AddProposer("ngram", 9, 80, report);
  int parent = -1;
  for (int node = 0; node < 80; ++node) {
    foretoken::v1::StepTree& tree = *report.mutable_tree();
    tree.add_token_ids(1);
    tree.add_parents(parent);
    tree.add_chances(.9f);
    tree.add_path_chances(.9f);
    tree.add_proposers(1);
    tree.add_planned(true);
    if (node % 2 == 1) parent = node;
  }
  const TokenTexts texts({{1, std::string(30, '\x01')}});
  for (const absl::string_view line : absl::StrSplit(StepText(report, texts, {}), '\n')) {
    EXPECT_LE(NumColumns(line), 100) << line;
  }
}

TEST(StepText, NamesTokensWithoutTextByTheirIds) {
  EXPECT_THAT(StepText(MakeReport(1, 9, "a"), TokenTexts(), {}), HasSubstr("\"#97\""));
}

}  // namespace
}  // namespace foretoken::client
