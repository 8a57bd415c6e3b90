// SPDX-License-Identifier: Apache-2.0
// Vocabularies that do not match a model's rows exactly. If this test fails, an output has ids that are not tokens, and
// the next request refuses them as input.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::verifier {
namespace {

using nlohmann::json;
using testing::InProcessProposers;
using testing::Results;

json DemoFile() {
  std::ifstream file(testing::SourcePath("deploy/demo/target/tokenizer.json"));
  return json::parse(file);
}

tokenizer::Tokenizer LoadFile(const json& content) {
  const testing::TempDir directory;
  directory.Write("tokenizer.json", content.dump());
  return tokenizer::Tokenizer::Load(directory.path()).value();
}

// Removes the tokens that no merge needs. Their ids become holes of the vocabulary.
json WithHoles(json content) {
  std::set<std::string> used;
  json merges = json::array();
  const auto sides = [](const json& merge) {
    if (merge.is_array()) return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
    const auto text = merge.get<std::string>();
    return std::pair(text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1));
  };
  for (const json& merge : content["model"]["merges"]) used.insert({sides(merge).first, sides(merge).second});
  for (const json& merge : content["model"]["merges"]) {
    const std::string merged = sides(merge).first + sides(merge).second;
    if (used.contains(merged)) {
      merges.push_back(merge);
    } else {
      content["model"]["vocab"].erase(merged);
    }
  }
  content["model"]["merges"] = merges;
  return content;
}

class EngineVocabularyTest : public testing::EngineFixture {
 protected:
  std::vector<GenerationRequest> Requests() {
    next_ticket_ = 1;
    std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 1.5f, 60),
                                               Request("import os\nimport sys\n", 1.0f, 60),
                                               Request("class Stack:\n", 0, 60)};
    for (GenerationRequest& request : requests) request.output.num_logprobs = 20;
    requests[1].banned_token_ids = {tokenizer_->Encode("x").value()[0]};
    requests[2].stop.min_tokens = 30;
    return requests;
  }

  static int NumUnknown(const Results& results, const tokenizer::Vocabulary& vocabulary) {
    int num_unknown = 0;
    const auto count = [&](int32_t id) { num_unknown += vocabulary.Find(id) == nullptr ? 1 : 0; };
    for (const auto& [key, result] : results) {
      for (const int32_t id : result.token_ids) count(id);
      for (const auto& row : result.logprobs) {
        for (const auto& [id, bits] : row) count(id);
      }
    }
    return num_unknown;
  }
};

TEST_F(EngineVocabularyTest, AHoleIsNeverDrawnNorReported) {
  const tokenizer::Tokenizer with_holes = LoadFile(WithHoles(DemoFile()));
  InProcessProposers none;
  const Results whole = Generate(Requests(), none);
  ASSERT_GT(NumUnknown(whole, with_holes.vocabulary()), 100) << "the model draws many of the removed tokens";
  const Results results = Generate(Requests(), none, {.tokenizer = &with_holes});
  EXPECT_EQ(NumUnknown(results, with_holes.vocabulary()), 0);
  for (const auto& [key, result] : results) EXPECT_GE(result.token_ids.size(), 30);
}

TEST_F(EngineVocabularyTest, ATokenWithoutARowChangesNothing) {
  json content = DemoFile();
  content["added_tokens"].push_back({{"id", 4096}, {"content", "<pad>"}, {"special", true}});
  const tokenizer::Tokenizer padded = LoadFile(content);
  ASSERT_EQ(padded.vocabulary().num_ids(), 4097);
  InProcessProposers none;
  EXPECT_EQ(Generate(Requests(), none, {.tokenizer = &padded}), Generate(Requests(), none));
}

// A form may force the text of such a token, and then the grammar must not guess the token.
TEST_F(EngineVocabularyTest, ATokenWithoutARowIsNotGuessedWhereAFormForcesItsText) {
  json content = DemoFile();
  content["added_tokens"].push_back({{"id", 4096}, {"content", "<pad>"}, {"special", false}});
  const tokenizer::Tokenizer padded = LoadFile(content);
  ASSERT_EQ(padded.Encode("<pad>", {.add_special_tokens = false}).value(), std::vector<int32_t>{4096});
  const GrammarVocabulary vocabulary(TokensOf(padded.vocabulary(), 4093, std::vector<int32_t>{4092}));
  GenerationRequest request = Request("def read_config(path):\n", 1.0f, 20);
  request.grammar = Grammar::Compile({.kind = GrammarKind::kRegex, .text = "<pad>[0-9]"}, vocabulary).value();
  request.speculation.mode = SpeculationMode::kAlways;
  InProcessProposers none;
  for (const auto rule : {kernels::VerificationRule::kKeyedDraw, kernels::VerificationRule::kRejectionSampling}) {
    request.verification = rule;
    const Results results = Generate({request}, none, {.tokenizer = &padded});
    EXPECT_EQ(results.begin()->second.error, absl::OkStatus());
    EXPECT_EQ(results.begin()->second.text.substr(0, 5), "<pad>");
  }
}

}  // namespace
}  // namespace foretoken::verifier
