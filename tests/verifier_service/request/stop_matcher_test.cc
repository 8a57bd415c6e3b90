// SPDX-License-Identifier: Apache-2.0
// Stop strings in text that arrives in pieces. If this test fails, an output runs past its stop string, stops too
// early, or shows a part of the stop string.
#include "verifier_service/request/stop_matcher.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> matched;
  bool operator==(const Outcome&) const = default;
};

// Appends the pieces, and flushes if no string matched.
Outcome Feed(StopMatcher matcher, const std::vector<std::string>& pieces) {
  Outcome outcome;
  for (const std::string& piece : pieces) {
    StopMatcher::Released released = matcher.Append(piece, true);
    outcome.text += released.text;
    if (released.matched) {
      outcome.matched = released.matched;
      return outcome;
    }
  }
  outcome.text += matcher.Flush();
  return outcome;
}

// The slow and obvious rule: the match with the smallest end, then the first in the list.
Outcome Reference(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].size() > end || text.substr(end - stops[i].size(), stops[i].size()) != stops[i]) continue;
      return {text.substr(0, end - stops[i].size()), i};
    }
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, FindsAStringAcrossPieces) {
  EXPECT_EQ(Feed(StopMatcher({"STOP"}, false), {"abS", "T", "OPcd"}), (Outcome{"ab", 0}));
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"aab"}, false);
  EXPECT_EQ(matcher.Append("xaa", true).text, "x");
  EXPECT_EQ(matcher.Append("a", true).text, "a");
  EXPECT_EQ(matcher.Append("c", true).text, "aac");
}

TEST(StopMatcher, FlushGivesWhatWasHeldBack) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.Append("xSTO", true).text, "x");
  EXPECT_EQ(matcher.Flush(), "STO");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, IncludesTheStopStringWhenAsked) {
  EXPECT_EQ(Feed(StopMatcher({"STOP"}, true), {"abST", "OPcd"}), (Outcome{"abSTOP", 0}));
}

TEST(StopMatcher, TheStringCompleteFirstWins) {
  EXPECT_EQ(Feed(StopMatcher({"abcd", "bc"}, false), {"xabcd"}), (Outcome{"xa", 1}));
}

TEST(StopMatcher, OfStringsCompleteTogetherTheFirstListedWins) {
  EXPECT_EQ(Feed(StopMatcher({"c", "abc"}, false), {"abc"}), (Outcome{"ab", 0}));
  EXPECT_EQ(Feed(StopMatcher({"abc", "c"}, false), {"abc"}), (Outcome{"", 0}));
}

TEST(StopMatcher, AStringThatCompletesTooEarlyDoesNotCountButMayServeALaterOne) {
  StopMatcher matcher({"aXa"}, false);
  EXPECT_EQ(matcher.Append("aXa", false).text, "aX");
  StopMatcher::Released released = matcher.Append("Xa", true);
  EXPECT_EQ(released.matched, 0);
  EXPECT_EQ(released.text, "");
}

TEST(StopMatcher, AStringBegunBeforeItCountsIsFound) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.Append("ST", false).text, "");
  EXPECT_EQ(matcher.Append("OP", true).matched, 0);
}

TEST(StopMatcher, AgreesWithTheObviousRuleForAllPiecesOfText) {
  std::mt19937 random(7);
  const auto draw = [&](size_t length) {
    std::string text(length, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int num_matched = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = draw(1 + random() % 8);
    const std::string text = draw(random() % 40);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min<size_t>(random() % 5, text.size() - at);
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    const Outcome expected = Reference(stops, text);
    EXPECT_EQ(Feed(StopMatcher(stops, false), pieces), expected) << text;
    num_matched += expected.matched.has_value();
  }
  EXPECT_GT(num_matched, 1000);
}

}  // namespace
}  // namespace foretoken::verifier
