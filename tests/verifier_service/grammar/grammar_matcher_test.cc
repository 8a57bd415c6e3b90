// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar_matcher.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/grammar_tokens.h"
#include "tests/testing/paths.h"
#include "verifier_service/grammar/grammar.h"
#include "verifier_service/grammar/grammar_follower.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int32_t kEndOfMatch = testing::kEndOfBytes;

std::shared_ptr<const Grammar> CompiledForMatcher(GrammarKind kind, const std::string& text,
                                                  const GrammarTokens& tokens = testing::ByteTokens()) {
  auto grammar = Grammar::Compile({.kind = kind, .text = text}, GrammarVocabulary(tokens));
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *grammar;
}

TEST(GrammarMatcher, TheEndMayComeWhereTheFormMayEnd) {
  GrammarMatcher matcher(CompiledForMatcher(GrammarKind::kRegex, "ab?"));
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre('a'));
  ASSERT_TRUE(matcher.Accept('a'));
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre('b', kEndOfMatch));
  ASSERT_TRUE(matcher.Accept('b'));
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre(kEndOfMatch));
  ASSERT_TRUE(matcher.Accept(kEndOfMatch));
  EXPECT_TRUE(matcher.has_ended());
  EXPECT_THAT(testing::AllowedIds(matcher), IsEmpty());
  EXPECT_FALSE(matcher.Accept('a'));
  matcher.Rollback(2);
  EXPECT_FALSE(matcher.has_ended());
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre('b', kEndOfMatch));
}

// The vocabulary of the demo target, with tokens that end strings early and late, and some longer than any budget.
GrammarTokens DemoTokens() {
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  GrammarTokens tokens = TokensOf(tokenizer.vocabulary(), 4093, std::vector<int32_t>{4092});
  for (int32_t length = 0; length < 12; ++length) {
    const std::string text = std::string("aé b1éc2dX\\nzé", 16).substr(0, length);
    for (const char* const end : {"\"", "\", \"", "\"]", "\"}", "\\\"", "é\"", " (", "é"})
      tokens.bytes.push_back(text + end);
  }
  for (const int32_t length : {130, 200}) {
    tokens.bytes.push_back(std::string(length, 'a'));
    tokens.bytes.push_back(std::string(length, ' ') + "\"");
  }
  return tokens;
}

// A mask is computed in other ways than a token is accepted.
TEST(GrammarMatcher, AMaskHasTheTokensThatAcceptTakes) {
  const auto string_of = [](const std::string& bounds) { return R"({"type":"string",)" + bounds + "}"; };
  const std::pair<GrammarKind, std::string> forms[] = {
      {GrammarKind::kRegex, "[A-Z][a-z]+( [A-Z][a-z]+)*: [0-9]+(\\.[0-9]+)?"},
      {GrammarKind::kRegex, "(a|é|[0-9]{2,5})*(X|\\w+ \\(.)"},
      {GrammarKind::kRegex, "[^a]{3,9}z?"},
      {GrammarKind::kRegex, "(?:[ab]*a[ab]{12}|[ab]*c)+"},  // an automaton of it has too many states
      {GrammarKind::kJsonSchema, string_of(R"("maxLength":30)")},
      {GrammarKind::kJsonSchema, string_of(R"("minLength":3,"maxLength":14)")},
      {GrammarKind::kJsonSchema, string_of(R"("maxLength":150)")},
      {GrammarKind::kJsonSchema, R"({"type":"array","items":{"type":"string","maxLength":12}})"},
      {GrammarKind::kJsonSchema, R"({"type":"object","additionalProperties":{"type":"string","maxLength":11}})"},
      {GrammarKind::kStructuralTag,
       R"({"format":{"type":"sequence","elements":[{"type":"const_string","value":"<"},
           {"type":"json_schema","json_schema":{"type":"string","maxLength":9}},{"type":"any_text"}]}})"},
  };
  const GrammarTokens tokens = DemoTokens();
  const auto num_tokens = static_cast<int32_t>(tokens.bytes.size());
  testing::RandomValues random(7);
  for (const auto& [kind, form] : forms) {
    const auto grammar = CompiledForMatcher(kind, form, tokens);
    for (int text = 0; text < 8; ++text) {
      GrammarMatcher matcher(grammar);
      for (int position = 0; position < 14 && !matcher.has_ended(); ++position) {
        std::vector<int32_t> taken;
        for (int32_t id = 0; id < num_tokens; ++id) {
          if (!matcher.Accept(id)) continue;
          taken.push_back(id);
          matcher.Rollback(1);
        }
        const std::vector<int32_t> allowed = testing::AllowedIds(matcher, num_tokens);
        std::vector<int32_t> different;
        std::ranges::set_symmetric_difference(allowed, taken, std::back_inserter(different));
        ASSERT_THAT(different, IsEmpty())
            << form << " at " << position << ", the first: " << tokens.bytes[different[0]];
        ASSERT_FALSE(taken.empty());
        // The shortest of some, so that the walk also stands close to a bound.
        int32_t next = taken[random.Below(static_cast<int32_t>(taken.size()))];
        for (int draw = 0; draw < 4 * (text % 4); ++draw) {
          const int32_t other = taken[random.Below(static_cast<int32_t>(taken.size()))];
          if (!tokens.bytes[other].empty() && tokens.bytes[other].size() < tokens.bytes[next].size()) next = other;
        }
        ASSERT_TRUE(matcher.Accept(next));
      }
    }
  }
}

// Each blank of a text is one of ever more parses. Token b is many blanks, and c even more before the end of the text.
GrammarMatcher MatcherOfBlanks() {
  GrammarTokens tokens = testing::ByteTokens();
  tokens.bytes['b'] = std::string(40, ' ');
  tokens.bytes['c'] = std::string(200, ' ') + "\x01";
  const auto grammar = Grammar::Compile({.kind = GrammarKind::kEbnf, .text = "root ::= s \"\\x01\"\ns ::= \" \" | s s"},
                                        GrammarVocabulary(tokens));
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return GrammarMatcher(*grammar);
}

TEST(GrammarMatcher, GivesUpOnATextWithTooManyParses) {
  GrammarMatcher matcher = MatcherOfBlanks();
  int32_t num_tokens = 0;
  while (num_tokens < 100 && matcher.Accept('b')) ++num_tokens;
  EXPECT_THAT(num_tokens, ::testing::AllOf(::testing::Gt(2), ::testing::Lt(100)));
  EXPECT_TRUE(matcher.has_given_up());
  EXPECT_FALSE(matcher.Accept('b'));  // it stays where it is, and the next call counts from zero
  EXPECT_TRUE(matcher.has_given_up());
  EXPECT_FALSE(matcher.Accept('x'));
  EXPECT_FALSE(matcher.has_given_up());
  matcher.Rollback(num_tokens - 1);
  int32_t num_again = 1;
  while (matcher.Accept('b')) ++num_again;
  EXPECT_EQ(num_again, num_tokens);
}

TEST(GrammarMatcher, AMaskOfWhichItGivesUpIsEmpty) {
  GrammarMatcher matcher = MatcherOfBlanks();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(matcher.Accept('b'));
  EXPECT_THAT(testing::AllowedIds(matcher), IsEmpty());
  EXPECT_TRUE(matcher.has_given_up());
  matcher.Rollback(3);
  EXPECT_FALSE(matcher.Accept('x'));
  EXPECT_FALSE(matcher.has_given_up());
}

// The tree below "" of the regex a(b|c)d*: b under a is allowed, x is not, and neither is anything below x.
TEST(VisitAllowed, StandsBehindEachAllowedNodeAndEndsAtTheRoot) {
  GrammarMatcher matcher(CompiledForMatcher(GrammarKind::kRegex, "a(b|c)d*"));
  speculation::TokenTree tree;
  const int32_t a = tree.Append({.token_id = 'a'});
  const int32_t x = tree.Append({.token_id = 'x'});
  const int32_t b = tree.Append({.token_id = 'b', .parent = a});
  tree.Append({.token_id = 'a', .parent = x});
  const int32_t c = tree.Append({.token_id = 'c', .parent = a});
  const int32_t d = tree.Append({.token_id = 'd', .parent = b});
  std::vector<std::pair<int32_t, std::vector<int32_t>>> visited;
  VisitAllowed(tree, matcher, [&](int32_t node) { visited.emplace_back(node, testing::AllowedIds(matcher)); });
  EXPECT_THAT(visited, ElementsAre(Pair(a, ElementsAre('b', 'c')), Pair(b, ElementsAre('d', kEndOfMatch)),
                                   Pair(d, ElementsAre('d', kEndOfMatch)), Pair(c, ElementsAre('d', kEndOfMatch))));
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre('a'));
}

// A proposer chooses the order of the nodes, so the order must not make the walk long.
TEST(VisitAllowed, TakesNoLongerWhereChainsAreInterleaved) {
  GrammarMatcher matcher(CompiledForMatcher(GrammarKind::kRegex, "(a|b)*"));
  constexpr int32_t kChain = speculation::kMaxTreeNodes / 2;
  speculation::TokenTree chains, interleaved;
  for (int32_t i = 0; i < 2 * kChain; ++i) {
    const int32_t begins = i % kChain == 0;
    chains.Append({.token_id = 'a' + i / kChain, .parent = begins ? speculation::kRootParent : i - 1});
    interleaved.Append({.token_id = 'a' + i % 2, .parent = i < 2 ? speculation::kRootParent : i - 2});
  }
  const auto time_of = [&](const speculation::TokenTree& tree) {
    const absl::Time began = ThreadTime();
    int32_t num_visited = 0;
    VisitAllowed(tree, matcher, [&](int32_t) { ++num_visited; });
    EXPECT_EQ(num_visited, 2 * kChain);
    return ThreadTime() - began;
  };
  time_of(chains);                                        // warm
  EXPECT_LT(time_of(interleaved), 20 * time_of(chains));  // 250 times, if each node began at the root
}

}  // namespace
}  // namespace foretoken::verifier
