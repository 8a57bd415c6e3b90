// SPDX-License-Identifier: Apache-2.0
// Damaged and contradictory tokenizer files. If this test fails, such a file crashes a server or is served with wrong
// tokens, or its error does not name the file, the field, the expected and the given value.
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "common/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/tokenizer/tokenizer_file.h"

namespace foretoken::tokenizer {
namespace {

using nlohmann::json;

void ExpectRefused(const TokenizerFile& file, const std::vector<std::string>& parts) {
  const absl::Status status = Tokenizer::Load(file.directory()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts)
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << "\nlacks " << part;
}

void ExpectPatchRefused(const std::string& style, const json& patch, std::vector<std::string> parts) {
  SCOPED_TRACE(patch.dump());
  parts.push_back("tokenizer.json: ");
  ExpectRefused(TokenizerFile(style, patch), parts);
}

json Split(const json& pattern, const std::string& behavior = "Isolated") {
  return {
      {"pre_tokenizer", {{"type", "Split"}, {"pretokenizers", nullptr}, {"pattern", pattern}, {"behavior", behavior}}}};
}

TEST(Load, NamesAMissingFile) {
  const absl::Status status = Tokenizer::Load("/no/such/directory").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), "/no/such/directory/tokenizer.json")) << status;
}

TEST(Load, RefusesAFileThatIsNotJson) {
  const TokenizerFile file("qwen2");
  for (const char* content : {"", "{", "{\"model\": {}", "\xff\xfe", "{\"a\": \"\xff\"}"}) {
    file.Write("tokenizer.json", content);
    ExpectRefused(file, {"tokenizer.json: not valid JSON"});
  }
  file.Write("tokenizer.json", "[]");
  ExpectRefused(file, {"expected an object, got a list"});
  file.Write("tokenizer.json", "{\"normalizer\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}");
  ExpectRefused(file, {"tokenizer.json: expected JSON of at most 64 nested levels"});
}

TEST(Load, RefusesAFileWithoutModelOrDecoder) {
  ExpectPatchRefused("qwen2", {{"model", nullptr}}, {"\"model\""});
  ExpectPatchRefused("qwen2", {{"decoder", nullptr}}, {"\"decoder\""});
  ExpectPatchRefused("qwen2", {{"model", {{"vocab", nullptr}}}}, {"model: ", "\"vocab\""});
  ExpectPatchRefused("qwen2", {{"model", {{"merges", nullptr}}}}, {"model: ", "\"merges\""});
}

TEST(Load, RefusesOtherModelsByName) {
  ExpectPatchRefused("qwen2", {{"model", {{"type", "WordPiece"}}}},
                     {"model.type: expected \"BPE\" or \"Unigram\", the supported models, got \"WordPiece\""});
  // This is BERT's file; the error must name its model, not its other parts.
  ExpectPatchRefused("qwen2",
                     {{"model", {{"type", "WordPiece"}}},
                      {"normalizer", {{"type", "BertNormalizer"}}},
                      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                      {"decoder", {{"type", "WordPiece"}}}},
                     {"model.type", "WordPiece"});
  ExpectPatchRefused("qwen2", {{"model", {{"dropout", 0.1}}}}, {"model.dropout", "0.1"});
  ExpectPatchRefused("qwen2", {{"model", {{"continuing_subword_prefix", "##"}}}}, {"continuing_subword_prefix", "##"});
  ExpectPatchRefused("qwen2", {{"model", {{"end_of_word_suffix", "</w>"}}}}, {"end_of_word_suffix", "</w>"});
}

TEST(Load, RefusesAUnigramThatMakesNoSense) {
  const auto model = [](const json& patch) { return json{{"model", patch}}; };
  const auto vocab = [](const json& entry) {
    return json{{"model", {{"vocab", json::array({json::array({"<unk>", 0.0}), entry})}}}};
  };
  ExpectPatchRefused("unigram", model({{"unk_id", 99999}}), {"model.unk_id", "the id of a token, got 99999"});
  ExpectPatchRefused("unigram", model({{"unk_id", -1}}), {"model.unk_id", "-1"});
  ExpectPatchRefused("unigram", model({{"vocab", nullptr}}), {"model", "\"vocab\""});
  ExpectPatchRefused("unigram", vocab(json::array({"a"})), {"model.vocab[1]", "[TOKEN, SCORE]"});
  ExpectPatchRefused("unigram", vocab(json::array({"a", "b"})), {"model.vocab[1][1]", "a number, got \"b\""});
  ExpectPatchRefused("unigram", vocab(json::array({7, 1.0})), {"model.vocab[1][0]", "a string, got 7"});
  ExpectPatchRefused("unigram", vocab(json::array({"<unk>", 1.0})), {"model.vocab[1][0]", "not that of id 0"});
  ExpectPatchRefused("unigram", vocab(json::array({std::string(1025, 'a'), 1.0})),
                     {"model: vocab[1]", "1024 bytes, got 1025"});
  ExpectPatchRefused("unigram", {{"pre_tokenizer", {{"type", "ByteLevel"}}}}, {"model", "Unigram", "ByteLevel"});
}

TEST(Load, RefusesOtherStepsByName) {
  ExpectPatchRefused("qwen2", {{"normalizer", {{"type", "NFKC"}}}}, {"normalizer: ", "NFKC"});
  ExpectPatchRefused("qwen2", {{"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}}},
                     {"normalizer.normalizers[0]", "Lowercase"});
  ExpectPatchRefused("qwen2", {{"pre_tokenizer", {{"type", "BertPreTokenizer"}}}},
                     {"pre_tokenizer: ", "BertPreTokenizer"});
  ExpectPatchRefused("qwen2", {{"decoder", {{"type", "WordPiece"}}}}, {"decoder: ", "WordPiece"});
  ExpectPatchRefused("qwen2", {{"post_processor", {{"type", "BertProcessing"}}}},
                     {"post_processor: ", "BertProcessing"});
  ExpectPatchRefused("qwen2", {{"normalizer", {{"type", 7}}}}, {"normalizer.type", "expected a string, got 7"});
}

TEST(Load, RefusesStepsInAnUnsupportedOrder) {
  const json byte_level = {{"type", "ByteLevel"}};
  const json fuse = {{"type", "Fuse"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const auto decoders = [](const json& steps) { return json{{"decoder", {{"decoders", steps}}}}; };
  ExpectPatchRefused("qwen2", {{"pre_tokenizer", {{"pretokenizers", {byte_level, byte_level}}}}}, {"pretokenizers[1]"});
  ExpectPatchRefused("qwen2", {{"pre_tokenizer", {{"pretokenizers", {byte_level, {{"type", "Metaspace"}}}}}}},
                     {"pretokenizers[1]", "Metaspace", "after ByteLevel"});
  ExpectPatchRefused("llama2", decoders({byte_level, fuse}), {"decoders[0]", "ByteLevel"});
  ExpectPatchRefused("llama2", decoders({strip, fuse}), {"decoders[0]", "Strip"});
  ExpectPatchRefused("llama2", decoders({fuse, {{"type", "ByteFallback"}}}), {"decoders[1]", "ByteFallback"});
  json strips_the_end = strip;
  strips_the_end["stop"] = 1;
  ExpectPatchRefused("llama2", decoders({fuse, strips_the_end}), {"decoders[1]", "stop"});
  json strips_two = strip;
  strips_two["content"] = "ab";
  ExpectPatchRefused("llama2", decoders({fuse, strips_two}), {"decoders[1].content", "one character"});
  json negative = strip;
  negative["start"] = -1;
  ExpectPatchRefused("llama2", decoders({fuse, negative}), {"decoders[1].start", "-1"});
}

TEST(Load, RefusesSequencesNestedTooDeeply) {
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) nested = {{"type", "Sequence"}, {"normalizers", json::array({nested})}};
  ExpectPatchRefused("qwen2", {{"normalizer", nested}}, {"nested"});
}

TEST(Load, RefusesStepsThatInflateATextWithoutBound) {
  const std::string long_text(17, 'b');
  ExpectPatchRefused("llama2",
                     {{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", long_text}}}},
                     {"normalizer.content", "at most 16 bytes", long_text});
  ExpectPatchRefused("llama2", {{"normalizer", {{"type", "Prepend"}, {"prepend", long_text}}}},
                     {"normalizer.prepend", "at most 16 bytes", long_text});
  const json doubles = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaa"}};
  const json many(4, doubles), same(65, {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}});
  const auto normalizers = [](const json& steps) {
    return json{{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}}};
  };
  ExpectPatchRefused("llama2", normalizers(many), {"normalizers[3]", "81 times as long: expected at most 64"});
  ExpectPatchRefused("llama2", normalizers(same), {"normalizers[64]", "expected at most 64 steps"});
  ExpectPatchRefused("llama2", {{"decoder", {{"type", "Sequence"}, {"decoders", many}}}},
                     {"decoders[3]", "81 times as long: expected at most 64"});
}

TEST(Load, RefusesPatternsThatItCannotRun) {
  ExpectPatchRefused("qwen2", Split({{"Regex", "a(b"}}), {"pre_tokenizer.pattern.Regex", "a(b", "not closed"});
  ExpectPatchRefused("qwen2", Split({{"Regex", "a\\"}}), {"backslash"});
  ExpectPatchRefused("qwen2", Split({{"Regex", "\\p{L"}}), {"a property without {NAME}"});
  ExpectPatchRefused("qwen2", Split({{"Regex", "\\bword"}}), {"\\b"});
  const std::pair<std::string, std::string> unsupported[] = {
      {"[[:alpha:]]", "POSIX"},
      {"[a", "not closed"},
      {"[a[b]", "not closed"},
      {"[b-a]", "a range"},
      {"[a-\\d]", "a range"},
      {std::string(17, '[') + "a" + std::string(17, ']'), "nested more than 16 deep"},
      {"a)", "closing bracket"},
      {"a{1,3}+", "{n,m}+"},
      {"a{3}?", "{n}?"},
      {"a+**", "a quantifier of a quantifier"},
      {"\\p{Emoji}", "property \"Emoji\""},
      {"\\p{}", "property \"\""},
      {"\\pL", "a property without {NAME}"},
      {"\\x{110000}", "the number of a character"},
      {"\\u12", "the number of a character"},
      {"\\1", "\\1"},
      {"\\R", "\\R"},
      {"\\Ka", "\\K"},
      {"(?<name>a)", "(?<n"},
      {"(?m:.)", "(?m:"},
      {"a(?i)b", "(?i)"},
      {"(*FAIL)", "(*FA"},
      {"(?i:\u00e9)", "beyond ASCII"},
      {"(?i:[a-\u00e9])", "beyond ASCII"},
      {"(?i:\\p{L})", "under (?i)"},
      {"(?i:strasse)", "\"st\" under (?i)"},
      {"(?<=a+)b", "does not compile"},
  };
  for (const auto& [regex, why] : unsupported) ExpectPatchRefused("qwen2", Split({{"Regex", regex}}), {why});
  ExpectPatchRefused("qwen2", Split({{"Glob", "*"}}), {"pattern", "Regex"});
  ExpectPatchRefused("qwen2", Split({{"String", "a"}}, "Sometimes"), {"behavior", "Sometimes"});
  ExpectPatchRefused("llama2", {{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "b"}}}},
                     {"normalizer.pattern", "String"});
  ExpectPatchRefused("llama2", {{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "b"}}}},
                     {"normalizer.pattern.String", "not empty"});
}

TEST(Load, RefusesAMetaspaceThatContradictsItself) {
  ExpectPatchRefused("mistral", {{"pre_tokenizer", {{"add_prefix_space", false}}}}, {"prepend_scheme", "never"});
  ExpectPatchRefused("mistral", {{"pre_tokenizer", {{"prepend_scheme", "often"}}}}, {"prepend_scheme", "often"});
  ExpectPatchRefused("mistral", {{"pre_tokenizer", {{"replacement", "__"}}}}, {"replacement", "one character"});
}

TEST(Load, RefusesIdsThatCannotBe) {
  const auto vocab = [](const json& entry) { return json{{"model", {{"vocab", entry}}}}; };
  ExpectPatchRefused("qwen2", vocab({{"new", -1}}), {"model.vocab.new", "-1"});
  ExpectPatchRefused("qwen2", vocab({{"new", 1.5}}), {"model.vocab.new", "1.5"});
  ExpectPatchRefused("qwen2", vocab({{"new", "7"}}), {"model.vocab.new", "\"7\""});
  ExpectPatchRefused("qwen2", vocab({{"new", 7}}), {"id 7 is already that of"});
  ExpectPatchRefused("qwen2", vocab({{"new", 2000000000}}), {"model.vocab.new", "2000000000"});
  ExpectPatchRefused("qwen2", vocab({{"new", 18446744073709551615u}}), {"model.vocab.new", "18446744073709551615"});
  ExpectPatchRefused("qwen2", {{"model", {{"vocab", json::array({1})}}}}, {"model.vocab", "an object"});
}

TEST(Load, RefusesMergesOfUnknownTokens) {
  const auto merges = [](const json& list) { return json{{"model", {{"merges", list}}}}; };
  ExpectPatchRefused("qwen2", merges({"a b", "a \u1234"}), {"model.merges[", "is not in the vocabulary"});
  ExpectPatchRefused("qwen2", merges({"\u0120 \u0120", "! \u0100"}), {"model.merges[1]", "!\u0100"});
  ExpectPatchRefused("qwen2", merges({"abc"}), {"model.merges[0]", "LEFT RIGHT"});
  ExpectPatchRefused("qwen2", merges({json::array({"a"})}), {"model.merges[0]", "LEFT"});
  ExpectPatchRefused("qwen2", merges({7}), {"model.merges[0]", "expected a string, got 7"});
  ExpectPatchRefused("qwen2", merges("a b"), {"model.merges", "a list"});
}

TEST(Load, RefusesAnUnknownUnknownToken) {
  ExpectPatchRefused("llama2", {{"model", {{"unk_token", "<what>"}}}}, {"model.unk_token", "<what>"});
}

TEST(Load, RefusesFlagsThatAreNotFlags) {
  ExpectPatchRefused("llama2", {{"model", {{"byte_fallback", "yes"}}}},
                     {"model.byte_fallback", "true or false", "yes"});
}

TEST(Load, RefusesAddedTokensThatContradictTheVocabulary) {
  const auto added = [](const json& token) { return json{{"added_tokens", json::array({token})}}; };
  ExpectPatchRefused("qwen2", added({{"id", 7}, {"content", "<new>"}}), {"<new>", "id 7 is already that of"});
  ExpectPatchRefused("qwen2", added({{"id", 2000}, {"content", "a"}}), {"added_tokens[0].id", "as in model.vocab"});
  ExpectPatchRefused("qwen2", added({{"id", 2000000000}, {"content", "<new>"}}), {"<new>", "2000000000"});
  ExpectPatchRefused("qwen2", added({{"id", 2000}, {"content", ""}}), {"added_tokens[0]", "1 to 256 bytes, got 0"});
  ExpectPatchRefused("qwen2", added({{"id", 2000}, {"content", std::string(1 << 20, 'a')}}),
                     {"added_tokens[0]", "1 to 256 bytes, got 1048576"});
  ExpectPatchRefused("qwen2", added({{"content", "<new>"}}), {"added_tokens[0]", "\"id\""});
  ExpectPatchRefused("qwen2",
                     {{"added_tokens", {{{"id", 2000}, {"content", "<new>"}}, {{"id", 2001}, {"content", "<new>"}}}}},
                     {"<new>", "twice"});
}

TEST(Load, RefusesTemplatesThatMakeNoSense) {
  const auto single = [](const json& list) { return json{{"post_processor", {{"single", list}}}}; };
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json other = {{"SpecialToken", {{"id", "<other>"}, {"type_id", 0}}}};
  ExpectPatchRefused("llama2", single(json::array({bos})), {"post_processor.single", "never"});
  ExpectPatchRefused("llama2", single({text, text}), {"post_processor.single", "twice"});
  ExpectPatchRefused("llama2", single({other, text}), {"post_processor.special_tokens", "<other>"});
  ExpectPatchRefused("llama2", {{"post_processor", {{"special_tokens", {{"<s>", {{"ids", {99999}}}}}}}}},
                     {"ids[0]", "the id of a token, got 99999"});
  json long_list = json::array({text});
  for (int i = 0; i < 65; ++i) long_list.push_back(bos);
  ExpectPatchRefused("llama2", single(long_list), {"post_processor.single", "at most 64 tokens around a text"});
}

// The file's text with a vocabulary of only its first tokens, so that damage hits all other parts.
std::string TextOfSmall(const std::string& style) {
  std::ifstream in(testing::SourcePath("tests/cases/tokenizer/" + style + "/tokenizer.json"));
  json content = json::parse(in);
  json& model = content["model"];
  if (model["vocab"].is_array()) {
    model["vocab"].erase(model["vocab"].begin() + 40, model["vocab"].end());
    return content.dump();
  }
  model["merges"] = json::array();
  for (auto entry = model["vocab"].begin(); entry != model["vocab"].end();) {
    entry = entry.value() < 40 ? std::next(entry) : model["vocab"].erase(entry);
  }
  return content.dump();
}

TEST(Load, RandomDamageNeverCrashes) {
  constexpr std::string_view kLikelyBytes = "0123456789-.,:[]{}\"eE \\\0\xff";
  constexpr int kNumFiles = 1000;
  std::mt19937 random(20240609);
  for (const char* style : {"llama3", "llama2", "mistral", "unigram"}) {
    SCOPED_TRACE(style);
    const std::string whole = TextOfSmall(style);
    const TokenizerFile file(style);
    int num_accepted = 0;
    for (int i = 0; i < kNumFiles; ++i) {
      std::string damaged = whole;
      damaged[random() % damaged.size()] = kLikelyBytes[random() % kLikelyBytes.size()];
      file.Write("tokenizer.json", damaged);
      const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(file.directory());
      if (!tokenizer.ok()) continue;
      ++num_accepted;
      const absl::StatusOr<std::vector<int32_t>> ids = tokenizer->Encode("a <s>\n\xc3\xa9", {.parse_special = true});
      EXPECT_TRUE(!ids.ok() || tokenizer->Decode(*ids).ok());
    }
    EXPECT_GT(num_accepted, 0);
    EXPECT_LT(num_accepted, kNumFiles);
  }
}

TEST(Load, RefusesAConfigThatContradictsTheTokenizer) {
  const TokenizerFile file("qwen2");
  file.Write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<what>"})");
  ExpectRefused(file, {"tokenizer_config.json: bos_token", "<what>"});
  file.Write("tokenizer_config.json", R"({"add_bos_token": true})");
  ExpectRefused(file, {"tokenizer_config.json: ", "\"bos_token\""});
  file.Write("tokenizer_config.json", "{");
  ExpectRefused(file, {"tokenizer_config.json: not valid JSON"});
  file.Write("tokenizer_config.json", "{\"x\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}");
  ExpectRefused(file, {"tokenizer_config.json: expected JSON of at most 64 nested levels"});
}

}  // namespace
}  // namespace foretoken::tokenizer
