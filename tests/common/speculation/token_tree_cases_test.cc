// SPDX-License-Identifier: Apache-2.0
// Runs tests/cases/token_trees.txt; the file explains its form. If this test fails, guesses are lost or put at wrong
// places, so speculation gains less, or rejection sampling is not exact.
#include <gtest/gtest.h>

#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/speculation/token_tree.h"
#include "tests/testing/paths.h"

namespace foretoken::speculation {
namespace {

struct Case {
  std::string name;
  std::vector<std::string> operation;
  std::vector<TokenTree> trees;
  std::string want;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// A number that does not parse makes the case fail with "bad", which no tree contains.
template <typename T>
T Number(absl::string_view text) {
  double value = 0;
  EXPECT_TRUE(absl::SimpleAtod(text, &value)) << "not a number: " << text;
  return static_cast<T>(value);
}

TokenTree ParseTree(absl::string_view text) {
  TokenTree tree;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipWhitespace())) {
    if (absl::ConsumePrefix(&word, "@")) {
      tree.position = Number<uint64_t>(word);
      continue;
    }
    if (const std::vector<absl::string_view> group = absl::StrSplit(word, '>'); group.size() == 2) {
      SampledChildren& sampled = tree.sampled.emplace_back();
      sampled.parent = Number<int32_t>(group[0]);
      for (absl::string_view child : absl::StrSplit(group[1], ',')) sampled.children.push_back(Number<int32_t>(child));
      continue;
    }
    const std::vector<absl::string_view> fields = absl::StrSplit(word, '/');
    EXPECT_GE(fields.size(), 3) << "not a node: " << word;
    tree.Append({.token_id = Number<int32_t>(fields.at(0)),
                 .parent = Number<int32_t>(fields.at(1)),
                 .chance = Number<float>(fields.at(2)),
                 .proposers = fields.size() > 3 ? Number<uint32_t>(fields[3]) : 1});
  }
  return tree;
}

std::string Spell(const TokenTree& tree) {
  std::string text = absl::StrCat("@", tree.position);
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    absl::StrAppend(&text, " ", tree.nodes[i].token_id, "/", tree.nodes[i].parent, "/", tree.nodes[i].chance, "/",
                    tree.nodes[i].proposers);
  }
  for (const SampledChildren& group : tree.sampled) {
    absl::StrAppend(&text, " ", group.parent, ">", absl::StrJoin(group.children, ","));
  }
  return text;
}

std::vector<Case> ReadCases() {
  std::ifstream file(testing::SourcePath("tests/cases/token_trees.txt"));
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    if (absl::ConsumePrefix(&text, "case ")) {
      cases.emplace_back().name = std::string(text);
    } else if (text == "tree" || absl::ConsumePrefix(&text, "tree ")) {
      cases.back().trees.push_back(ParseTree(text));
    } else if (absl::ConsumePrefix(&text, "want ")) {
      cases.back().want = std::string(text);
    } else {
      cases.back().operation = absl::StrSplit(text, ' ', absl::SkipWhitespace());
    }
  }
  return cases;
}

void RunCase(const Case& c) {
  const std::string& operation = c.operation.at(0);
  const std::vector<std::string> arguments(c.operation.begin() + 1, c.operation.end());
  if (operation == "merge") {
    EXPECT_EQ(Spell(Merge(c.trees)), Spell(ParseTree(c.want)));
    return;
  }
  const TokenTree& tree = c.trees.at(0);
  if (operation == "validate") {
    const absl::Status status = Validate(tree, Number<int32_t>(arguments.at(0)), Number<int32_t>(arguments.at(1)));
    absl::string_view want = c.want;
    if (absl::ConsumePrefix(&want, "error ")) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(want), absl::string_view::npos) << status << "\nwanted " << want;
    } else {
      EXPECT_EQ(want, "ok");
      EXPECT_TRUE(status.ok()) << status;
    }
  } else if (operation == "reroot") {
    std::vector<int32_t> committed;
    for (const std::string& token : arguments) committed.push_back(Number<int32_t>(token));
    EXPECT_EQ(Spell(ReRoot(tree, committed)), Spell(ParseTree(c.want)));
  } else if (operation == "best") {
    EXPECT_EQ(Spell(BestNodes(tree, Number<int32_t>(arguments.at(0)))), Spell(ParseTree(c.want)));
  } else if (operation == "cut") {
    EXPECT_EQ(Spell(CutDepth(tree, Number<int32_t>(arguments.at(0)))), Spell(ParseTree(c.want)));
  } else if (operation == "paths") {
    std::vector<float> want;
    for (absl::string_view word : absl::StrSplit(c.want, ' ')) want.push_back(Number<float>(word));
    EXPECT_EQ(PathChances(tree), want);
  } else {
    ADD_FAILURE() << "unknown operation " << operation;
  }
}

class TokenTreeCase : public ::testing::TestWithParam<Case> {};

TEST_P(TokenTreeCase, Holds) { RunCase(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Table, TokenTreeCase, ::testing::ValuesIn(ReadCases()),
                         [](const auto& info) { return info.param.name; });

TEST(TokenTreeCases, AreThere) { EXPECT_GE(ReadCases().size(), 30); }

}  // namespace
}  // namespace foretoken::speculation
