// SPDX-License-Identifier: Apache-2.0
// Encoding, decoding and vocabularies. If this test fails, users can write tokens that only the server may write, get
// broken characters in streams, or pair a verifier with a proposer of another vocabulary.
#include "common/tokenizer/tokenizer.h"

#include <string>
#include <thread>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/tokenizer/unicode/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/tokenizer/tokenizer_file.h"
#include "tests/testing/paths.h"

namespace foretoken::tokenizer {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

Tokenizer LoadStyle(const std::string& style) {
  return Tokenizer::Load(testing::SourcePath("tests/cases/tokenizer/" + style)).value();
}

TEST(Encode, AddsTheTokensOfTheTemplateByDefault) {
  const Tokenizer tokenizer = LoadStyle("llama2");
  const Ids plain = tokenizer.Encode("x", {.add_special_tokens = false}).value();
  Ids with_bos = plain;
  with_bos.insert(with_bos.begin(), tokenizer.vocabulary().FindId("<s>").value());
  EXPECT_EQ(tokenizer.Encode("x").value(), with_bos);
  EXPECT_EQ(tokenizer.Encode("x", {.add_special_tokens = true}).value(), with_bos);
}

TEST(Encode, AddsTheTokensOfTheConfigIfThereIsNoTemplate) {
  const TokenizerFile file("qwen2");
  const Ids plain = Tokenizer::Load(file.directory())->Encode("x").value();
  file.Write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|im_start|>", "add_eos_token": true,
                                          "eos_token": {"content": "<|im_end|>", "lstrip": false}})");
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  EXPECT_THAT(tokenizer.Encode("x").value(),
              ElementsAre(*vocabulary.FindId("<|im_start|>"), plain[0], *vocabulary.FindId("<|im_end|>")));
  EXPECT_EQ(tokenizer.Encode("x", {.add_special_tokens = false}).value(), plain);
}

TEST(Encode, LetsTheTemplateWinOverTheConfig) {
  const TokenizerFile file("llama2");
  file.Write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "</s>"})");
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  EXPECT_EQ(tokenizer.Encode("x").value(), LoadStyle("llama2").Encode("x").value());
}

TEST(Encode, ParsesSpecialTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = LoadStyle("qwen2");
  const int32_t im_end = tokenizer.vocabulary().FindId("<|im_end|>").value();
  EXPECT_THAT(tokenizer.Encode("<|im_end|>", {.parse_special = true}).value(), ElementsAre(im_end));
  const Ids as_text = tokenizer.Encode("<|im_end|>").value();
  EXPECT_GT(as_text.size(), 1);
  EXPECT_THAT(as_text, ::testing::Not(::testing::Contains(im_end)));
}

// The vocabularies of these models list the special tokens, too.
TEST(Encode, MakesNoSpecialTokenFromPiecesOfAText) {
  const Tokenizer unigram = LoadStyle("unigram");
  for (const char* spelling : {"<s>", "</s>", "<unk>"}) {
    const int32_t id = unigram.vocabulary().FindId(spelling).value();
    const std::string text = std::string("x ") + spelling + " y";
    EXPECT_THAT(unigram.Encode(text, {.add_special_tokens = false}).value(), ::testing::Not(::testing::Contains(id)));
    EXPECT_THAT(unigram.Encode(text, {.parse_special = true}).value(), ::testing::Contains(id));
  }
  const int32_t merged = LoadStyle("llama3").vocabulary().FindId("def").value();
  const int32_t letter = LoadStyle("llama3").vocabulary().FindId("d").value();
  const json special = {{{"id", merged}, {"content", "def"}, {"special", true}},
                        {{"id", letter}, {"content", "d"}, {"special", true}}};
  for (const bool ignores_merges : {false, true}) {
    const TokenizerFile file(
        "llama3",
        {{"model", {{"ignore_merges", ignores_merges}}}, {"added_tokens", special}, {"post_processor", nullptr}});
    const Tokenizer bpe = Tokenizer::Load(file.directory()).value();
    EXPECT_THAT(bpe.Encode("def").value(), ::testing::Not(::testing::Contains(merged)));
    EXPECT_EQ(bpe.Decode(bpe.Encode("def").value()).value(), "def") << "a letter has no other token";
    EXPECT_THAT(bpe.Encode("def", {.parse_special = true}).value(), ElementsAre(merged));
  }
}

TEST(Encode, AlwaysRecognisesAddedTokensThatAreNotSpecial) {
  const Tokenizer tokenizer = LoadStyle("qwen2");
  EXPECT_THAT(tokenizer.Encode("<tool_call>").value(), ElementsAre(*tokenizer.vocabulary().FindId("<tool_call>")));
}

TEST(Encode, RefusesTextThatIsNotUtf8NamingTheByte) {
  const Tokenizer tokenizer = LoadStyle("llama3");
  for (const char* bad :
       {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xe4\xb8", "ab\x80"}) {
    const absl::Status status = tokenizer.Encode(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte 2")) << bad;
  }
}

TEST(Encode, ReadsTheOldMetaspaceSpellingWithoutPrefixAsNever) {
  const TokenizerFile old_spelling("mistral",
                                   {{"pre_tokenizer", {{"add_prefix_space", false}, {"prepend_scheme", nullptr}}}});
  const TokenizerFile new_spelling("mistral", {{"pre_tokenizer", {{"prepend_scheme", "never"}}}});
  const Tokenizer a = Tokenizer::Load(old_spelling.directory()).value();
  const Tokenizer b = Tokenizer::Load(new_spelling.directory()).value();
  EXPECT_EQ(a.Encode("a b").value(), b.Encode("a b").value());
  EXPECT_NE(a.Encode("a b").value(), LoadStyle("mistral").Encode("a b").value());
}

TEST(Encode, RunsInManyThreadsAtOnce) {
  const Tokenizer tokenizer = LoadStyle("llama3");
  const std::string text = "def f(x):\n    return 'caf\xc3\xa9'  # 12345\n";
  const Ids expected = tokenizer.Encode(text).value();
  std::vector<int> num_equal(4);
  std::vector<std::thread> threads;
  for (int& count : num_equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.Encode(text).value() == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(num_equal, ElementsAre(200, 200, 200, 200));
}

TEST(Decode, RefusesIdsThatAreNoTokens) {
  const Tokenizer tokenizer = LoadStyle("llama2");
  for (const int32_t bad : {-1, static_cast<int32_t>(tokenizer.vocabulary().num_ids())}) {
    const absl::Status status = tokenizer.Decode(Ids{5, bad}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("token id 1:"));
  }
}

TEST(Decode, SkipsSpecialTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = LoadStyle("qwen2");
  const Ids ids = tokenizer.Encode("a<|im_end|>b", {.parse_special = true}).value();
  EXPECT_EQ(tokenizer.Decode(ids).value(), "a<|im_end|>b");
  EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = true}).value(), "ab");
}

TEST(Decode, TakesTheLeadingSpaceAwayOnlyAtTheStartOfAText) {
  for (const char* style : {"llama2", "mistral"}) {
    const Tokenizer tokenizer = LoadStyle(style);
    const Ids ids = tokenizer.Encode("ab", {.add_special_tokens = false}).value();
    EXPECT_EQ(tokenizer.Decode(ids).value(), "ab");
    EXPECT_EQ(tokenizer.Decode(ids, {.continues_text = true}).value(), " ab");
  }
}

TEST(Decode, ContinuesAMetaspaceTextWithItsSpace) {
  const nlohmann::json decoder = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  const TokenizerFile file("mistral", {{"decoder", decoder}});
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  const Ids ids = tokenizer.Encode("ab c", {.add_special_tokens = false}).value();
  EXPECT_EQ(tokenizer.Decode(ids).value(), "ab c");
  EXPECT_EQ(tokenizer.Decode(ids, {.continues_text = true}).value(), " ab c");
}

// The id of a byte's token.
int32_t ByteToken(const Tokenizer& tokenizer, uint8_t byte) {
  for (int32_t id = 0; id < tokenizer.vocabulary().num_ids(); ++id) {
    const Token* token = tokenizer.vocabulary().Find(id);
    if (token != nullptr && token->bytes == std::string(1, static_cast<char>(byte))) return id;
  }
  ADD_FAILURE() << "no token for byte " << int{byte};
  return 0;
}

std::vector<std::string> Deltas(const Tokenizer& tokenizer, const std::vector<uint8_t>& bytes) {
  IncrementalDecoder decoder(tokenizer, {.continues_text = true});
  std::vector<std::string> deltas;
  for (const uint8_t byte : bytes) deltas.push_back(decoder.Append(ByteToken(tokenizer, byte)));
  deltas.push_back(decoder.Flush());
  return deltas;
}

TEST(IncrementalDecoder, HoldsBackACharacterUntilItIsWhole) {
  for (const char* style : {"llama3", "llama2"}) {
    const Tokenizer tokenizer = LoadStyle(style);
    EXPECT_THAT(Deltas(tokenizer, {0xf0, 0x9f, 0x98, 0x80, 0xc3, 0xa9}),
                ElementsAre("", "", "", "\xf0\x9f\x98\x80", "", "\xc3\xa9", ""));
  }
}

TEST(IncrementalDecoder, LetsALineFeedPassAtOnce) {
  EXPECT_THAT(Deltas(LoadStyle("llama2"), {'\n', '\n'}), ElementsAre("\n", "\n", ""));
}

TEST(IncrementalDecoder, ReplacesABrokenSequenceAsTheDecoderDoes) {
  // Byte level: one replacement per sequence. Byte tokens: one per byte.
  EXPECT_THAT(Deltas(LoadStyle("llama3"), {0xf0, 0x9f, 'a', 0xe4, 0xb8}), ElementsAre("", "",
                                                                                      "\ufffd"
                                                                                      "a",
                                                                                      "", "", "\ufffd"));
  EXPECT_THAT(Deltas(LoadStyle("llama2"), {0xf0, 0x9f, 0xff, 0xe4, 0xb8}),
              ElementsAre("", "", "\ufffd\ufffd\ufffd", "", "", "\ufffd\ufffd"));
}

TEST(IncrementalDecoder, ReplacesBytesThatStartNoCharacter) {
  EXPECT_THAT(Deltas(LoadStyle("llama3"), {0x80, 0xc0, 0xed, 0xa0, 0xf5}),
              ElementsAre("\ufffd", "\ufffd", "", "\ufffd\ufffd", "\ufffd", ""));
}

TEST(IncrementalDecoder, EndsABrokenSequenceAtATextToken) {
  const Tokenizer tokenizer = LoadStyle("llama2");
  IncrementalDecoder decoder(tokenizer, {});
  EXPECT_EQ(decoder.Append(ByteToken(tokenizer, 0xe4)), "");
  EXPECT_EQ(decoder.Append(*tokenizer.vocabulary().FindId("a")),
            "\ufffd"
            "a");
}

TEST(IncrementalDecoder, IgnoresIdsThatAreNoTokens) {
  const Tokenizer tokenizer = LoadStyle("llama2");
  IncrementalDecoder decoder(tokenizer, {});
  EXPECT_EQ(decoder.Append(-1), "");
  EXPECT_EQ(decoder.Append(1 << 30), "");
}

TEST(IncrementalDecoder, AgreesWithDecodeOnRandomIds) {
  uint64_t random = 1;
  for (const char* style : {"llama3", "qwen2", "llama2", "mistral"}) {
    const Tokenizer tokenizer = LoadStyle(style);
    for (int round = 0; round < 300; ++round) {
      const DecodeOptions options{.skip_special = round % 2 == 0, .continues_text = round % 3 == 0};
      Ids ids;
      IncrementalDecoder decoder(tokenizer, options);
      std::string all;
      for (int i = 0; i < 40; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        // Mostly low ids, because the bytes are among them.
        const size_t limit = random >> 63 ? 259 : tokenizer.vocabulary().num_ids();
        ids.push_back(static_cast<int32_t>((random >> 33) % limit));
        const std::string delta = decoder.Append(ids.back());
        EXPECT_EQ(FirstInvalidUtf8(delta), std::nullopt);
        all += delta;
      }
      all += decoder.Flush();
      EXPECT_EQ(all, tokenizer.Decode(ids, options).value());
    }
  }
}

TEST(Vocabulary, KnowsSpellingBytesAndFlag) {
  const Tokenizer tokenizer = LoadStyle("llama2");
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const int32_t line_feed = vocabulary.FindId("<0x0A>").value();
  EXPECT_EQ(vocabulary.Find(line_feed)->bytes, "\n");
  EXPECT_FALSE(vocabulary.IsSpecial(line_feed));
  EXPECT_TRUE(vocabulary.IsSpecial(vocabulary.FindId("<s>").value()));
  EXPECT_EQ(vocabulary.FindId("no such token"), std::nullopt);
  EXPECT_EQ(vocabulary.Find(-1), nullptr);
  const Tokenizer byte_level = LoadStyle("llama3");
  EXPECT_EQ(byte_level.vocabulary().Find(*byte_level.vocabulary().FindId("\u0120"))->bytes, " ");
}

TEST(Vocabulary, FitsAModelThatHasARowForEveryId) {
  const Tokenizer tokenizer = LoadStyle("qwen2");
  const size_t num_ids = tokenizer.vocabulary().num_ids();
  EXPECT_TRUE(tokenizer.CheckFits(num_ids).ok());
  EXPECT_TRUE(tokenizer.CheckFits(num_ids + 64).ok());
  const absl::Status status = tokenizer.CheckFits(1000);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("vocab_size of 1000, got 1000"));
}

// A fine-tune of Llama 2 adds "<pad>" with id 32000 to a model of 32000 rows.
TEST(Vocabulary, AddedTokensNeedNoRowOfTheModel) {
  const TokenizerFile llama2("llama2");
  json added = json::parse(base::ReadFile(llama2.directory() + "/tokenizer.json").value())["added_tokens"];
  const size_t num_model_ids = LoadStyle("llama2").vocabulary().num_ids();
  added.push_back({{"id", num_model_ids}, {"content", "<pad>"}, {"special", true}});
  const Tokenizer tokenizer = Tokenizer::Load(TokenizerFile("llama2", {{"added_tokens", added}}).directory()).value();
  EXPECT_EQ(tokenizer.vocabulary().num_ids(), num_model_ids + 1);
  EXPECT_TRUE(tokenizer.CheckFits(num_model_ids).ok()) << tokenizer.CheckFits(num_model_ids);
  EXPECT_FALSE(tokenizer.CheckFits(num_model_ids - 1).ok()) << "a token of the model itself";
}

TEST(Vocabulary, TokensAroundEveryTextNeedARowOfTheModel) {
  const Tokenizer tokenizer = LoadStyle("llama3");
  const int32_t bos = tokenizer.vocabulary().FindId("<|begin_of_text|>").value();
  EXPECT_TRUE(tokenizer.CheckFits(static_cast<size_t>(bos) + 1).ok());
  EXPECT_THAT(std::string(tokenizer.CheckFits(static_cast<size_t>(bos)).message()), HasSubstr("<|begin_of_text|>"));
}

TEST(Encode, RefusesUnknownCharactersIfAUnigramHasNoUnknownToken) {
  const TokenizerFile file("unigram", {{"model", {{"unk_id", nullptr}}}});
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  EXPECT_TRUE(tokenizer.Encode("the").ok());
  const absl::Status status = tokenizer.Encode("the \U0001f9ff").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no unknown token"));
}

Vocabulary MakeVocabulary(std::vector<std::optional<Token>> tokens) { return Vocabulary(std::move(tokens)); }

TEST(VocabularyFingerprint, IsTheSha256OfItsDefinition) {
  // python3: sha256(b"".join(struct.pack("<QQ", i, len(b)) + b + struct.pack("<Q", s) for i, b, s in
  //   [(0, b"a", 0), (2, b"<s>", 1)])).hexdigest()
  const Vocabulary vocabulary = MakeVocabulary({Token{"a", "a", false}, std::nullopt, Token{"<s>", "<s>", true}});
  EXPECT_EQ(base::ToHex(VocabularyFingerprint(vocabulary)),
            "ab590b27edf7e99dcc7e710da3aed135f8565caefc1e5aa72384cec91b46a310");
}

TEST(VocabularyFingerprint, DependsOnBytesIdsAndFlagsButNotOnSpellings) {
  const auto fingerprint = [](std::vector<std::optional<Token>> tokens) {
    return VocabularyFingerprint(MakeVocabulary(std::move(tokens)));
  };
  const auto reference = fingerprint({Token{"a", " a", false}});
  EXPECT_EQ(reference, fingerprint({Token{"\u2581"
                                          "a",
                                          " a", false}}));
  EXPECT_EQ(reference, fingerprint({Token{"a", " a", false}, std::nullopt}));
  EXPECT_NE(reference, fingerprint({Token{"a", "a", false}}));
  EXPECT_NE(reference, fingerprint({Token{"a", " a", true}}));
  EXPECT_NE(reference, fingerprint({std::nullopt, Token{"a", " a", false}}));
}

TEST(VocabularyFingerprint, IsTheSameForTheDemosTargetAndDraft) {
  const Tokenizer target = Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  const Tokenizer draft = Tokenizer::Load(testing::SourcePath("deploy/demo/draft")).value();
  EXPECT_EQ(VocabularyFingerprint(target.vocabulary()), VocabularyFingerprint(draft.vocabulary()));
}

TEST(FirstDifferingId, NamesTheFirstIdThatMeansDifferentThings) {
  const auto digests = [](std::vector<std::optional<Token>> tokens) {
    return TokenDigests(MakeVocabulary(std::move(tokens)));
  };
  const auto abc = digests({Token{"a", "a", false}, Token{"b", "b", false}, Token{"c", "c", false}});
  EXPECT_EQ(FirstDifferingId(abc, abc), std::nullopt);
  EXPECT_EQ(FirstDifferingId(abc, digests({Token{"a", "a", false}, Token{"x", "x", false}, Token{"y", "y", false}})),
            1);
  EXPECT_EQ(FirstDifferingId(abc, digests({Token{"a", "a", false}, std::nullopt, Token{"c", "c", false}})), 1);
  EXPECT_EQ(FirstDifferingId(abc, digests({Token{"a", "a", false}, Token{"b", "b", false}})), 2);
  EXPECT_EQ(FirstDifferingId(abc, digests({Token{"a", "a", true}})), 0);
}

}  // namespace
}  // namespace foretoken::tokenizer
