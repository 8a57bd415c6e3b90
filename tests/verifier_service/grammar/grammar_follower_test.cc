// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar_follower.h"

#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace foretoken::verifier {
namespace {

using ::testing::IsEmpty;

constexpr int32_t kEndOfOutput = 4092;  // of the demo tokenizer
constexpr int32_t kNumVocabularyTokens = kEndOfOutput + 1;

class GrammarFollowerTest : public ::testing::Test {
 protected:
  GrammarFollower Follow(GrammarKind kind, const std::string& text, Clock now = SteadyNow) {
    const auto grammar = Grammar::Compile({.kind = kind, .text = text}, vocabulary_);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return GrammarFollower(*grammar, tokenizer_, kNumVocabularyTokens, std::move(now));
  }

  std::string TextOf(const speculation::TokenTree& tree) {
    std::string text;
    for (const speculation::TreeNode& node : tree.nodes) text += tokenizer_.vocabulary().Find(node.token_id)->bytes;
    return text;
  }

  const tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  const GrammarVocabulary vocabulary_{
      TokensOf(tokenizer_.vocabulary(), kNumVocabularyTokens, std::vector<int32_t>{kEndOfOutput})};
};

TEST_F(GrammarFollowerTest, GuessesTheTextThatMustComeInTheTokenizersTokens) {
  GrammarFollower follower = Follow(GrammarKind::kRegex, "class Example\\(object\\): [ab]");
  const speculation::TokenTree tree = follower.Guess(/*max_nodes=*/32, /*proposers=*/4);
  EXPECT_EQ(TextOf(tree), "class Example(object):");  // " a" and " b" are tokens
  std::vector<int32_t> ids;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    EXPECT_EQ(tree.nodes[node].parent, node - 1);
    EXPECT_EQ(tree.nodes[node].proposers, 4);
    ids.push_back(tree.nodes[node].token_id);
  }
  EXPECT_EQ(ids, tokenizer_.Encode("class Example(object):", {.add_special_tokens = false}).value());
  EXPECT_EQ(follower.Guess(/*max_nodes=*/2, 1).num_nodes(), 2);
}

TEST_F(GrammarFollowerTest, GuessesNothingWhereSeveralTextsCanFollow) {
  GrammarFollower follower = Follow(GrammarKind::kRegex, "[ab]c");
  EXPECT_THAT(follower.Guess(32, 1).nodes, IsEmpty());
  follower.Append(tokenizer_.Encode("a").value()[0]);
  EXPECT_EQ(TextOf(follower.Guess(32, 1)), "c");
  follower.Append(tokenizer_.Encode("c").value()[0]);
  EXPECT_THAT(follower.Guess(32, 1).nodes, IsEmpty());  // only the end can follow, and it has no text
  follower.Append(kEndOfOutput);
  EXPECT_THAT(follower.Guess(32, 1).nodes, IsEmpty());
}

TEST_F(GrammarFollowerTest, LooksForAForcedTextOnce) {
  GrammarFollower follower = Follow(GrammarKind::kRegex, "class Example\\(object\\): [ab]");
  const std::vector<int32_t> ids = tokenizer_.Encode("class Example(object):", {.add_special_tokens = false}).value();
  EXPECT_EQ(follower.Guess(32, 1).num_nodes(), std::ssize(ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t num_masks = follower.num_masks();
    EXPECT_EQ(follower.Guess(32, 1).num_nodes(), std::ssize(ids) - static_cast<ptrdiff_t>(i));
    EXPECT_LE(follower.num_masks(), num_masks + 1);  // the next token's
    follower.Append(ids[i]);
  }
  EXPECT_THAT(follower.Guess(32, 1).nodes, IsEmpty());
}

TEST_F(GrammarFollowerTest, GuessesATextAgainAsTheModelCutIt) {
  GrammarFollower follower = Follow(GrammarKind::kRegex, "(class;[ab])*");
  const int32_t a = tokenizer_.Encode("a").value()[0];
  EXPECT_EQ(TextOf(follower.Guess(32, 1)), "");  // the end may come, too
  follower.Append(tokenizer_.Encode("c").value()[0]);
  EXPECT_LT(follower.Guess(32, 1).num_nodes(), 5);
  for (const char c : std::string("lass;")) {  // the model writes single letters
    follower.Guess(32, 1);
    follower.Append(tokenizer_.Encode(std::string(1, c)).value()[0]);
  }
  follower.Append(a);
  follower.Guess(32, 1);
  follower.Append(tokenizer_.Encode("c").value()[0]);
  const speculation::TokenTree tree = follower.Guess(32, 1);
  EXPECT_EQ(TextOf(tree), "lass;");
  EXPECT_EQ(tree.num_nodes(), 5);
}

TEST_F(GrammarFollowerTest, ATextThatNeverEndsIsGuessedInParts) {
  GrammarFollower follower = Follow(GrammarKind::kEbnf, "root ::= \"ab\" root");
  const speculation::TokenTree tree = follower.Guess(/*max_nodes=*/1000, 1);
  EXPECT_GE(tree.num_nodes(), 1);
  EXPECT_LE(tree.num_nodes(), 4 * GrammarFollower::kMaxForcedTokens);
  EXPECT_EQ(TextOf(tree).substr(0, 4), "abab");
}

TEST_F(GrammarFollowerTest, ATokenOutsideOfTheMaskLeavesNoToken) {
  GrammarFollower follower = Follow(GrammarKind::kRegex, "[0-9]+");
  follower.Append(tokenizer_.Encode("a").value()[0]);
  EXPECT_THAT(follower.next_mask(), ::testing::Each(0u));
}

TEST_F(GrammarFollowerTest, CountsTheTimeOfMasksAndOfWalks) {
  const auto clock = [now = absl::UnixEpoch()]() mutable { return now += absl::Milliseconds(1); };
  GrammarFollower follower = Follow(GrammarKind::kRegex, "[a-z]+", clock);
  EXPECT_EQ(follower.mask_time(), absl::ZeroDuration());
  follower.next_mask();
  EXPECT_EQ(follower.mask_time(), absl::Milliseconds(1));
  follower.Append(tokenizer_.Encode("a").value()[0]);
  EXPECT_EQ(follower.mask_time(), absl::Milliseconds(2));
  EXPECT_THAT(follower.AllowedNodes({}), IsEmpty());
  EXPECT_EQ(follower.mask_time(), absl::Milliseconds(3));
  EXPECT_EQ(follower.num_masks(), 1);
  EXPECT_EQ(follower.TokenTime(1), absl::Milliseconds(2)) << "the walk over guesses is not the output's";
}

// Every second mask takes 8 ms. The others take `other`, and come with right guesses or without.
TEST_F(GrammarFollowerTest, TheTimeOfTokensIsTheSameWithRightAndWithWrongGuesses) {
  const int32_t letter = tokenizer_.Encode("a").value()[0], digit = tokenizer_.Encode("7").value()[0];
  const auto token_time = [&](absl::Duration other, bool guesses) {
    absl::Duration pace;
    const auto clock = [&pace, now = absl::UnixEpoch()]() mutable { return now += pace; };
    GrammarFollower follower = Follow(GrammarKind::kRegex, "[a-z0-9]+", clock);
    for (int i = 0; i < 10; ++i) {
      pace = absl::Milliseconds(8);
      const size_t num_words = follower.next_mask().size();
      pace = other;
      if (guesses) {
        speculation::TokenTree tree;
        tree.Append({.token_id = digit});
        tree.Append({.token_id = letter});
        std::vector<uint32_t> masks(2 * num_words, 0u);
        follower.FillNodeMasks(tree, masks);
      }
      pace = absl::ZeroDuration();
      follower.Append(letter);
      pace = other;
      if (!guesses) follower.next_mask();
      pace = absl::ZeroDuration();
      follower.Append(letter);
    }
    return follower.TokenTime(1);
  };
  for (const bool guesses : {false, true}) {
    EXPECT_EQ(token_time(absl::ZeroDuration(), guesses), absl::Milliseconds(4)) << guesses;
    EXPECT_EQ(token_time(absl::Milliseconds(8), guesses), absl::Milliseconds(8)) << guesses;
  }
}

TEST_F(GrammarFollowerTest, FillsTheMasksBehindAllowedNodesAlone) {
  GrammarFollower follower = Follow(GrammarKind::kRegex, "[0-9][a-z]");
  const int32_t digit = tokenizer_.Encode("7").value()[0], letter = tokenizer_.Encode("a").value()[0];
  speculation::TokenTree tree;
  tree.Append({.token_id = letter});
  tree.Append({.token_id = digit});
  std::vector<uint32_t> masks(2 * follower.next_mask().size(), 0u);
  follower.FillNodeMasks(tree, masks);
  const std::span<const uint32_t> forbidden = std::span(masks).first(masks.size() / 2);
  EXPECT_THAT(forbidden, ::testing::Each(0u));
  follower.Append(digit);
  EXPECT_THAT(std::span<const uint32_t>(masks).subspan(masks.size() / 2),
              ::testing::ElementsAreArray(follower.next_mask()));
}

}  // namespace
}  // namespace foretoken::verifier
