// SPDX-License-Identifier: Apache-2.0
// Tokenizers of GGUF files against the tokenizer.json files of the same models. If this test fails, a GGUF model reads
// other tokens than it was trained with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/chat/template_files.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/text_split.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode/utf8.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::SourcePath;
using testing::TempDir;
using tokenizer::Tokenizer;

// The texts of the tokenizer's own cases: one JSON string a line.
std::vector<std::string> Texts() {
  const std::string file = base::ReadFile(SourcePath("tests/cases/tokenizer/texts.txt")).value();
  std::vector<std::string> texts;
  for (const absl::string_view line : absl::StrSplit(file, '\n', absl::SkipEmpty())) {
    texts.push_back(json::parse(std::string(line)).get<std::string>());
  }
  return texts;
}

json TokenizerFileOf(const std::string& directory) {
  json file = base::ReadJson(SourcePath(directory) + "/tokenizer.json").value();
  // GGUF cannot say that a token is searched for in the normalised text.
  json& added = file["added_tokens"];
  std::erase_if(added.get_ref<json::array_t&>(), [](const json& token) { return token["normalized"].get<bool>(); });
  return file;
}

struct Twins {
  TempDir dir;
  Tokenizer hugging_face;
  Tokenizer gguf;

  Twins(const json& file, const std::string& pre, bool adds_bos)
      : hugging_face(Plain(file)), gguf(FromGguf(file, pre, adds_bos)) {}

  Tokenizer Plain(const json& file) const {
    dir.Write("tokenizer.json", file.dump());
    return Tokenizer::Load(dir.path()).value();
  }
  Tokenizer FromGguf(const json& file, const std::string& pre, bool adds_bos) const {
    GgufWriter writer;
    testing::AddTokenizer(file, pre, writer);
    if (adds_bos) writer.Add("tokenizer.ggml.bos_token_id", file["added_tokens"][0]["id"].get<uint32_t>());
    absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(dir.Write("x.gguf", writer.Bytes()));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  }
};

struct Style {
  const char* directory;
  const char* pre;
  bool adds_bos;
};

class GgufTokenizers : public ::testing::TestWithParam<Style> {};

TEST_P(GgufTokenizers, GiveTheIdsOfTheirTwins) {
  const Twins twins(TokenizerFileOf(GetParam().directory), GetParam().pre, GetParam().adds_bos);
  EXPECT_EQ(VocabularyFingerprint(twins.gguf.vocabulary()), VocabularyFingerprint(twins.hugging_face.vocabulary()));
  for (const std::string& text : Texts()) {
    for (const bool parses_special : {false, true}) {
      const auto ids = twins.gguf.Encode(text, {.parse_special = parses_special});
      ASSERT_EQ(ids.value(), twins.hugging_face.Encode(text, {.parse_special = parses_special}).value()) << text;
      ASSERT_EQ(twins.gguf.Decode(*ids).value(), twins.hugging_face.Decode(*ids).value());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, GgufTokenizers,
                         ::testing::Values(Style{"tests/cases/tokenizer/llama3", "llama-bpe", true},
                                           Style{"tests/cases/tokenizer/qwen2", "qwen2", false},
                                           Style{"deploy/demo/target", "qwen2", false}));

// Patterns of other names, written here as tokenizer.json files have them.
TEST(GgufTokenizer, CutsTextAsItsNameSays) {
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const std::map<std::string, json> pre_tokenizers = {
      {"gpt-2", byte_level},
      {"olmo", byte_level},
      {"smollm",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}}},
  };
  for (const auto& [pre, pre_tokenizer] : pre_tokenizers) {
    json file = TokenizerFileOf("tests/cases/tokenizer/qwen2");
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = pre_tokenizer;
    const Twins twins(file, pre, false);
    for (const std::string& text : Texts()) {
      ASSERT_EQ(twins.gguf.Encode(text).value(), twins.hugging_face.Encode(text).value()) << pre << ": " << text;
    }
  }
}

// A word of o200k takes its contraction along, and a capital after a small letter begins another word. Qwen's rule,
// for comparison, cuts at the apostrophe, at each digit and before no capital.
TEST(GgufTokenizer, CutsWordsOfO200k) {
  const auto words_of = [](const std::string& pre, const std::string& text) {
    GgufWriter writer;
    writer.Add("tokenizer.ggml.pre", pre);
    const TempDir dir;
    const GgufFile file = GgufFile::Open(dir.Write("x.gguf", writer.Bytes())).value();
    json steps = ReadTextSplit(file.metadata())->pre_tokenizer;
    steps["pretokenizers"].erase(steps["pretokenizers"].size() - 1);  // its bytes
    const std::string name = "x.gguf";
    const auto cutter = tokenizer::PreTokenizer::FromJson(tokenizer::JsonValue(steps, name)).value();
    const tokenizer::Words words = cutter.Apply(text, true).value();
    return std::vector<std::string>(words.words.begin(), words.words.end());
  };
  const std::string text = "I don'T say HelloWorld 1234!\n/x";
  using Words = std::vector<std::string>;
  for (const char* pre : {"gpt-4o", "llama4"}) {
    EXPECT_EQ(words_of(pre, text), Words({"I", " don'T", " say", " Hello", "World", " ", "123", "4", "!\n/", "x"}));
  }
  EXPECT_EQ(words_of("qwen2", text),
            Words({"I", " don", "'T", " say", " HelloWorld", " ", "1", "2", "3", "4", "!\n", "/x"}));
  for (const char* pre : {"glm4", "chatglm-bpe"}) EXPECT_EQ(words_of(pre, text), words_of("llama3", text));
}

// A file may add a token that its merges make, too.
TEST(GgufTokenizer, MakesAddedTokensByMergesWhereItHasThem) {
  json file = TokenizerFileOf("tests/cases/tokenizer/qwen2");
  const json& merge = file["model"]["merges"][5];
  const std::string merged = merge.is_string() ? absl::StrReplaceAll(merge.get<std::string>(), {{" ", ""}})
                                               : merge[0].get<std::string>() + merge[1].get<std::string>();
  json token = file["added_tokens"][0];
  token["id"] = file["model"]["vocab"][merged];
  token["content"] = merged;
  file["added_tokens"].push_back(token);
  const Twins twins(file, "qwen2", false);
  for (const std::string& text : Texts()) {
    ASSERT_EQ(twins.gguf.Encode(text).value(), twins.hugging_face.Encode(text).value()) << text;
  }
}

TEST(GgufTokenizer, OfEveryNameIsReadAndOthersAreRefused) {
  const json file = TokenizerFileOf("tests/cases/tokenizer/qwen2");
  const TempDir dir;
  for (const char* pre : {"default", "llama3", "dbrx", "tekken", "deepseek-r1-qwen", "starcoder", "phi-2", "hal9000"}) {
    GgufWriter writer;
    testing::AddTokenizer(file, pre, writer);
    writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1201});
    const absl::Status status = Tokenizer::Load(dir.Write("x.gguf", writer.Bytes())).status();
    EXPECT_EQ(status.ok(), pre != std::string("hal9000")) << status;
    if (status.ok()) continue;
    EXPECT_THAT(status.ToString(), HasSubstr("tokenizer.ggml.pre: expected one of default, llama-bpe"));
  }
}

// SentencePiece's rule itself: of all neighbours the pair whose union has the best score is joined, the leftmost of
// equals, until no union is a token. Characters without a token become bytes.
class ByScores {
 public:
  explicit ByScores(const json& file) {
    float rank = 0;
    for (const auto& [token, id] : file["model"]["vocab"].items()) ids_[token] = id;
    for (const json& merge : file["model"]["merges"]) {
      const std::string text = merge.is_array() ? merge[0].get<std::string>() + merge[1].get<std::string>()
                                                : absl::StrReplaceAll(merge.get<std::string>(), {{" ", ""}});
      scores_.emplace(text, -rank++);
    }
  }

  std::vector<int32_t> Encode(const std::string& text) const {
    std::vector<std::string> symbols;
    if (text.empty()) return {};
    const std::string spelled = "\u2581" + absl::StrReplaceAll(text, {{" ", "\u2581"}});
    for (size_t at = 0; at < spelled.size(); at += symbols.back().size()) {
      symbols.push_back(spelled.substr(at, tokenizer::Utf8Length(spelled[at])));
    }
    while (true) {
      size_t best = symbols.size();
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto score = scores_.find(symbols[i] + symbols[i + 1]);
        if (score == scores_.end()) continue;
        if (best == symbols.size() || score->second > scores_.at(symbols[best] + symbols[best + 1])) best = i;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string& symbol : symbols) {
      if (const auto id = ids_.find(symbol); id != ids_.end()) {
        ids.push_back(id->second);
        continue;
      }
      for (const char byte : symbol) {
        char name[8];
        std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned char>(byte));
        ids.push_back(ids_.at(name));
      }
    }
    return ids;
  }

 private:
  std::map<std::string, int32_t> ids_;
  std::map<std::string, float> scores_;
};

TEST(GgufTokenizer, OfSentencePieceJoinsTheBestScoresFirst) {
  const json file = TokenizerFileOf("tests/cases/tokenizer/llama2");
  const Twins twins(file, "", /*adds_bos=*/false);  // the usual id 1
  EXPECT_EQ(VocabularyFingerprint(twins.gguf.vocabulary()), VocabularyFingerprint(twins.hugging_face.vocabulary()));
  const ByScores by_scores(file);
  int num_like_hugging_face = 0, num_texts = 0;
  for (const std::string& text : Texts()) {
    const std::vector<int32_t> ids = twins.gguf.Encode(text, {.add_special_tokens = false}).value();
    ASSERT_EQ(ids, by_scores.Encode(text)) << text;
    num_like_hugging_face += twins.gguf.Encode(text).value() == twins.hugging_face.Encode(text).value() ? 1 : 0;
    ++num_texts;
  }
  // The test's file lacks merges that a file made of scores would have.
  EXPECT_GE(num_like_hugging_face, num_texts * 99 / 100);
}

TEST(GgufTokenizer, KnowsItsTemplateAndSpecialTokens) {
  GgufWriter writer = testing::GgufTwin(SourcePath("deploy/demo/target"));
  const TempDir dir;
  const chat::TemplateFiles files = chat::ReadTemplateFiles(dir.Write("x.gguf", writer.Bytes())).value();
  const chat::TemplateFiles expected = chat::ReadTemplateFiles(SourcePath("deploy/demo/target")).value();
  EXPECT_EQ(files.standard, expected.standard);
  EXPECT_EQ(files.special_tokens.at("eos_token"), expected.special_tokens.at("eos_token"));
  writer.Add("tokenizer.chat_template.tool_use", std::string("{{ tools }}"));
  const chat::TemplateFiles two = chat::ReadTemplateFiles(dir.Write("x.gguf", writer.Bytes())).value();
  EXPECT_EQ(two.standard, expected.standard);
  EXPECT_EQ(two.for_tools, "{{ tools }}");
}

struct TokenizerFault {
  const char* name;
  void (*fill)(GgufWriter& writer);
  const char* message;
};

class GgufTokenizerFaults : public ::testing::TestWithParam<TokenizerFault> {};

TEST_P(GgufTokenizerFaults, AreNamed) {
  GgufWriter writer;
  GetParam().fill(writer);
  const TempDir dir;
  const absl::Status status = Tokenizer::Load(dir.Write("x.gguf", writer.Bytes())).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("x.gguf"), HasSubstr(GetParam().message)));
}

void Begin(GgufWriter& w, const std::string& model, const std::vector<std::string>& tokens = {"a", "b", "ab"}) {
  w.Add("tokenizer.ggml.model", model);
  w.Add("tokenizer.ggml.tokens", tokens);
}

std::vector<std::string> Nested() {
  std::vector<std::string> tokens;
  for (int length = 1; length <= 1000; ++length) tokens.push_back(std::string(length, 'a'));
  return tokens;
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufTokenizerFaults,
    ::testing::Values(
        TokenizerFault{"NoModel", [](auto&) {}, "tokenizer.ggml.model: is missing"},
        TokenizerFault{"Unigram", [](auto& w) { Begin(w, "t5"); },
                       "tokenizer.ggml.model: expected gpt2 or llama, got t5"},
        TokenizerFault{"NoTokens", [](auto& w) { w.Add("tokenizer.ggml.model", std::string("gpt2")); },
                       "tokenizer.ggml.tokens: is missing"},
        TokenizerFault{"NoMerges", [](auto& w) { Begin(w, "gpt2"); }, "tokenizer.ggml.merges: is missing"},
        TokenizerFault{"NoScores", [](auto& w) { Begin(w, "llama"); }, "tokenizer.ggml.scores: is missing"},
        TokenizerFault{"FewScores",
                       [](auto& w) { Begin(w, "llama"), w.Add("tokenizer.ggml.scores", std::vector<float>{1}); },
                       "tokenizer.ggml.scores: expected 3 elements, one per token, got 1"},
        TokenizerFault{"FewKinds",
                       [](auto& w) { Begin(w, "gpt2"), w.Add("tokenizer.ggml.token_type", std::vector<int32_t>{1}); },
                       "tokenizer.ggml.token_type: expected 3 elements"},
        TokenizerFault{"UnknownKind",
                       [](auto& w) {
                         Begin(w, "gpt2"), w.Add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 7});
                       },
                       "element 2: expected 1 to 6, got 7"},
        TokenizerFault{"TwoTokens",
                       [](auto& w) {
                         Begin(w, "gpt2", {"a", "b", "a"});
                         w.Add("tokenizer.ggml.merges", std::vector<std::string>());
                       },
                       "elements 0 and 2 are both \"a\""},
        TokenizerFault{"NotUtf8",
                       [](auto& w) {
                         Begin(w, "gpt2", {"a", "\xc3"});
                       },
                       "tokenizer.ggml.tokens: element 1: expected UTF-8 text, got other bytes"},
        TokenizerFault{"FarId", [](auto& w) { Begin(w, "gpt2"), w.Add("tokenizer.ggml.eos_token_id", uint32_t{3}); },
                       "tokenizer.ggml.eos_token_id: expected an id below the number of tokens 3, got 3"},
        TokenizerFault{"NoBos",
                       [](auto& w) {
                         Begin(w, "gpt2");
                         w.Add("tokenizer.ggml.merges", std::vector<std::string>());
                         w.Add("tokenizer.ggml.add_bos_token", true);
                       },
                       "tokenizer.ggml.bos_token_id: is missing, but"},
        TokenizerFault{"StrangeMerge",
                       [](auto& w) {
                         Begin(w, "gpt2");
                         w.Add("tokenizer.ggml.merges", std::vector<std::string>{"a c"});
                       },
                       "model.merges[0]"},
        TokenizerFault{"ManyWaysToCut",
                       [](auto& w) {
                         Begin(w, "llama", Nested());
                         w.Add("tokenizer.ggml.scores", std::vector<float>(1000, 1.f));
                       },
                       "made of each other in too many ways"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken::gguf
