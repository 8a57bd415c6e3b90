// SPDX-License-Identifier: Apache-2.0
// The suffix tree is compared with counts that the test makes by reading every position of every text. If these tests
// fail, the suffix proposer proposes strings that never occurred, or states wrong chances.
#include "proposer_service/suffix/suffix_tree.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/thread_time.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;

// The plain texts, each with its root.
using Texts = std::vector<std::pair<NodeIdx, std::vector<int32_t>>>;

// The number of occurrences of `string`, and the number of each token that follows it.
struct Occurrences {
  uint32_t count = 0;
  std::map<int32_t, uint32_t> next;
};

Occurrences Count(const Texts& texts, NodeIdx root, std::span<const int32_t> string) {
  Occurrences found;
  for (const auto& [owner, text] : texts) {
    if (owner != root) continue;
    for (size_t i = 0; i + string.size() <= text.size(); ++i) {
      if (!std::equal(string.begin(), string.end(), text.begin() + static_cast<ptrdiff_t>(i))) continue;
      ++found.count;
      if (i + string.size() < text.size()) ++found.next[text[i + string.size()]];
    }
  }
  return found;
}

std::vector<int32_t> RandomTreeText(std::mt19937& random, int32_t num_ids, size_t length) {
  std::vector<int32_t> text;
  while (text.size() < length) {
    if (text.size() > 8 && random() % 4 == 0) {
      // Repeats a part of the text.
      const size_t begin = random() % (text.size() - 4);
      const size_t end = std::min(text.size(), begin + random() % 20);
      for (size_t i = begin; i < end; ++i) text.push_back(text[i]);
    } else {
      text.push_back(static_cast<int32_t>(random() % num_ids));
    }
  }
  text.resize(length);
  return text;
}

void AppendAll(SuffixTree& tree, NodeIdx root, std::span<const int32_t> text) {
  for (const int32_t token_id : text) tree.Append(root, token_id);
}

// The cursor at a string; unset: the string does not occur.
std::optional<SuffixCursor> Find(const SuffixTree& tree, NodeIdx root, std::span<const int32_t> string) {
  SuffixCursor cursor = tree.AtRoot(root);
  for (const int32_t token_id : string) {
    if (!tree.Extend(cursor, token_id)) return std::nullopt;
  }
  return cursor;
}

std::map<int32_t, uint32_t> Continuations(const SuffixTree& tree, const SuffixCursor& cursor) {
  std::map<int32_t, uint32_t> next;
  if (cursor.at_node()) {
    for (const SuffixEdge& edge : tree.Edges(cursor)) next[edge.token_id] = edge.count;
  } else if (tree.NextToken(cursor) != SuffixTree::kEndOfText) {
    next[tree.NextToken(cursor)] = cursor.count;
  }
  return next;
}

void ExpectSameCounts(const SuffixTree& tree, const Texts& texts, NodeIdx root, std::span<const int32_t> string) {
  const Occurrences expected = Count(texts, root, string);
  const std::optional<SuffixCursor> cursor = Find(tree, root, string);
  ASSERT_EQ(cursor.has_value(), expected.count > 0) << ::testing::PrintToString(string);
  if (!cursor.has_value()) return;
  EXPECT_EQ(cursor->count, expected.count) << ::testing::PrintToString(string);
  if (string.size() < tree.max_depth()) {
    EXPECT_EQ(Continuations(tree, *cursor), expected.next) << ::testing::PrintToString(string);
  }
}

void ExpectSameCountsOfManyStrings(const SuffixTree& tree, const Texts& texts, NodeIdx root, std::mt19937& random) {
  ASSERT_TRUE(tree.CheckIntegrity());
  for (const auto& [owner, text] : texts) {
    for (int32_t i = 0; i < 40; ++i) {
      const size_t begin = random() % text.size();
      const size_t length = std::min<size_t>({1 + random() % tree.max_depth(), text.size() - begin});
      std::vector<int32_t> string(text.begin() + static_cast<ptrdiff_t>(begin),
                                  text.begin() + static_cast<ptrdiff_t>(begin + length));
      ExpectSameCounts(tree, texts, root, string);
      if (random() % 3 == 0) string.back() ^= 1;
      ExpectSameCounts(tree, texts, root, string);
    }
  }
}

TEST(SuffixTree, CountsEqualASearchOfTheTexts) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    SuffixTree tree({.max_depth = 2 + static_cast<int32_t>(random() % 14)});
    const NodeIdx root = tree.AddRoot();
    Texts texts;
    for (uint32_t i = 0; i < 6; ++i) {
      texts.emplace_back(root, RandomTreeText(random, 2 + static_cast<int32_t>(seed) % 5 * 10, 1 + random() % 300));
      AppendAll(tree, root, texts.back().second);
      tree.End();
      ExpectSameCountsOfManyStrings(tree, texts, root, random);
    }
  }
}

TEST(SuffixTree, KeepsRootsSeparate) {
  std::mt19937 random(1);
  SuffixTree tree({.max_depth = 8});
  const std::vector<NodeIdx> roots = {tree.AddRoot(), tree.AddRoot(), tree.AddRoot()};
  Texts texts;
  for (uint32_t i = 0; i < 20; ++i) {
    texts.emplace_back(roots[random() % 2], RandomTreeText(random, 6, 100));
    AppendAll(tree, texts.back().first, texts.back().second);
    tree.End();
  }
  for (const NodeIdx root : roots) ExpectSameCountsOfManyStrings(tree, texts, root, random);
  EXPECT_TRUE(tree.Edges(tree.AtRoot(roots[2])).empty());
}

TEST(SuffixTree, ForgettingATextLeavesTheTreeOfTheOtherTexts) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const uint32_t max_tokens = 700;
    SuffixTree tree({.max_depth = 2 + static_cast<int32_t>(random() % 14), .max_tokens = max_tokens});
    const std::vector<NodeIdx> roots = {tree.AddRoot(), tree.AddRoot()};
    Texts texts;
    for (uint32_t i = 0; i < 40; ++i) {
      const NodeIdx root = roots[random() % 2];
      const std::vector<int32_t> text =
          RandomTreeText(random, 2 + static_cast<int32_t>(seed) % 5 * 10, 1 + random() % 250);
      while (tree.free_places() < text.size() + 1) {
        tree.ForgetOldest();
        texts.erase(texts.begin());
      }
      AppendAll(tree, root, text);
      tree.End();
      texts.emplace_back(root, text);
      ASSERT_EQ(tree.num_texts(), texts.size());
      EXPECT_EQ(tree.CopyText(0), texts[0].second);
      for (const NodeIdx owner : roots) ExpectSameCountsOfManyStrings(tree, texts, owner, random);
    }
    while (tree.num_texts() > 0) tree.ForgetOldest();
    for (const NodeIdx owner : roots) EXPECT_TRUE(tree.Edges(tree.AtRoot(owner)).empty());
    EXPECT_EQ(tree.free_places(), max_tokens);
    for (const NodeIdx owner : roots) tree.RemoveRoot(owner);
  }
}

TEST(SuffixTree, ForgettingKeepsMemoryBounded) {
  std::mt19937 random(3);
  SuffixTree tree({.max_depth = 32, .max_tokens = 20'000});
  const NodeIdx root = tree.AddRoot();
  size_t bytes_when_full = 0;
  for (int32_t i = 0; i < 2000; ++i) {
    const std::vector<int32_t> text = RandomTreeText(random, 200, 200);
    while (tree.free_places() < text.size() + 1) tree.ForgetOldest();
    AppendAll(tree, root, text);
    tree.End();
    if (i == 300) bytes_when_full = tree.num_bytes();
  }
  EXPECT_LT(tree.num_bytes(), bytes_when_full * 1.1);
}

// Each text brings 500 different tokens after a token of its own. Short texts then keep two of them in the memory.
TEST(SuffixTree, NodesThatHadManyEdgesTakeLittleMemory) {
  constexpr uint32_t kMaxTokens = 20'000;
  SuffixTree tree({.max_depth = 16, .max_tokens = kMaxTokens});
  const NodeIdx root = tree.AddRoot();
  const auto add = [&](std::span<const int32_t> text) {
    while (tree.free_places() < text.size() + 1) tree.ForgetOldest();
    AppendAll(tree, root, text);
    tree.End();
  };
  for (int32_t round = 0; round < 600; ++round) {
    const int32_t key = 10'000 + round;
    std::vector<int32_t> text;
    for (int32_t i = 0; i < 500; ++i) text.insert(text.end(), {key, i});
    add(text);
    for (int32_t old_key = key - round % 8; old_key >= 10'000; old_key -= 8) {
      add(std::vector<int32_t>{old_key, 1, old_key, 2, old_key, 1, old_key, 2});
    }
  }
  EXPECT_TRUE(tree.CheckIntegrity());
  EXPECT_LT(tree.num_bytes(), 42 * kMaxTokens);
}

TEST(SuffixTree, TheActiveMatchIsTheLongestEndThatOccursBefore) {
  std::mt19937 random(5);
  const int32_t max_depth = 12;
  SuffixTree tree({.max_depth = max_depth});
  const NodeIdx root = tree.AddRoot();
  std::vector<int32_t> text;
  for (const int32_t token_id : RandomTreeText(random, 8, 1500)) {
    text.push_back(token_id);
    tree.Append(root, token_id);
    size_t longest = 0;
    for (size_t begin = 0; begin + 1 < text.size(); ++begin) {
      size_t length = 0;
      while (length <= begin && length < max_depth && text[begin - length] == text[text.size() - 1 - length]) ++length;
      longest = std::max(longest, length);
    }
    ASSERT_EQ(tree.active().depth, longest) << "after " << text.size();
  }
}

TEST(SuffixTree, AMatchShortenedAndExtendedIsTheLongestEnd) {
  std::mt19937 random(6);
  SuffixTree tree({.max_depth = 10});
  const NodeIdx root = tree.AddRoot();
  const Texts texts = {{root, RandomTreeText(random, 9, 2000)}};
  AppendAll(tree, root, texts[0].second);
  tree.End();
  SuffixCursor cursor = tree.AtRoot(root);
  std::vector<int32_t> read;
  for (const int32_t token_id : RandomTreeText(random, 9, 2000)) {
    const auto matched = [&] { return std::span(read).last(cursor.depth); };
    while (cursor.depth == tree.max_depth() || !tree.Extend(cursor, token_id)) {
      if (cursor.depth == 0) break;
      ASSERT_TRUE(tree.Shorten(cursor, root, matched()));
    }
    read.push_back(token_id);
    ASSERT_EQ(cursor.count, Count(texts, root, matched()).count);
    if (cursor.depth < std::min<size_t>(tree.max_depth(), read.size())) {
      ASSERT_EQ(Count(texts, root, std::span(read).last(cursor.depth + 1)).count, 0) << "a longer end occurs";
    }
  }
}

TEST(SuffixTree, EdgesAreInDescendingOrderOfCounts) {
  SuffixTree tree({.max_depth = 4});
  const NodeIdx root = tree.AddRoot();
  AppendAll(tree, root, std::vector<int32_t>{1, 5, 1, 6, 1, 7, 1, 6, 1, 7, 1, 7});
  tree.End();
  std::vector<int32_t> tokens;
  for (const SuffixEdge& edge : tree.Edges(*Find(tree, root, std::vector<int32_t>{1}))) tokens.push_back(edge.token_id);
  EXPECT_THAT(tokens, ElementsAre(7, 6, 5));
}

// A node with thousands of edges that are added and removed.
TEST(SuffixTree, NodesOfManyEdgesCountToo) {
  std::mt19937 random(8);
  SuffixTree tree({.max_depth = 3, .max_tokens = 8000});
  const NodeIdx root = tree.AddRoot();
  Texts texts;
  for (int32_t i = 0; i < 60; ++i) {
    std::vector<int32_t> text(1000);
    for (int32_t& token_id : text) token_id = std::min<int32_t>(random() % 3000, random() % 3000);
    while (tree.free_places() < text.size() + 1) {
      tree.ForgetOldest();
      texts.erase(texts.begin());
    }
    AppendAll(tree, root, text);
    tree.End();
    texts.emplace_back(root, text);
    if (i % 10 == 9) ExpectSameCountsOfManyStrings(tree, texts, root, random);
  }
}

TEST(SuffixTree, ReadersBetweenTheStepsOfBuildingFindExistingStrings) {
  std::mt19937 random(9);
  SuffixTree tree({.max_depth = 8, .max_tokens = 3000});
  const NodeIdx root = tree.AddRoot();
  // Reads the latest tokens, where the tree may be unfinished, and then other tokens.
  const auto read = [&](std::span<const int32_t> written) {
    std::vector<int32_t> string(written.end() - static_cast<ptrdiff_t>(std::min<size_t>(written.size(), 10)),
                                written.end());
    for (int32_t i = 0; i < 4; ++i) string.push_back(static_cast<int32_t>(random() % 5));
    SuffixCursor cursor = tree.AtRoot(root);
    std::vector<int32_t> path;
    for (const int32_t token_id : string) {
      while (cursor.depth == tree.max_depth() || !tree.Extend(cursor, token_id)) {
        if (cursor.depth == 0) break;
        tree.Shorten(cursor, root, std::span(path).last(cursor.depth));
        ASSERT_TRUE(Find(tree, root, std::span(path).last(cursor.depth)).has_value());
      }
      path.push_back(token_id);
      ASSERT_LE(cursor.depth, path.size());
      ASSERT_TRUE(Find(tree, root, std::span(path).last(cursor.depth)).has_value());
    }
  };
  for (int32_t i = 0; i < 60; ++i) {
    const std::vector<int32_t> text = RandomTreeText(random, 5, 150);
    while (tree.free_places() < text.size() + 1) {
      while (!tree.ForgetStep()) read(text);
    }
    for (size_t i = 0; i < text.size(); ++i) {
      const std::span<const int32_t> written = std::span(text).first(i + 1);
      tree.Push(root, text[i]);
      read(written);
      while (!tree.AppendStep()) read(written);
    }
    while (!tree.EndStep()) read(text);
  }
}

// The ids are those whose products with 2^32 / phi, a usual hash, are the smallest. A table of that hash takes four
// seconds and more, and one whose hash nobody can foresee some milliseconds.
TEST(SuffixTree, NobodyCanChooseTokensThatTakeLong) {
  uint32_t inverse = 1;  // of the factor, modulo 2^32
  for (int i = 0; i < 5; ++i) inverse *= 2 - 0x9E3779B1u * inverse;
  SuffixTree tree({.max_depth = 12});
  const NodeIdx root = tree.AddRoot();
  const absl::Duration begin = testing::ThreadTime();
  for (uint32_t product = 0; product < 120'000; ++product) {
    const uint32_t token_id = product * inverse;
    if (token_id < uint32_t{1} << 31) tree.Append(root, static_cast<int32_t>(token_id));
  }
  EXPECT_LT(testing::ThreadTime() - begin, absl::Seconds(2));
}

}  // namespace
}  // namespace foretoken::proposer
