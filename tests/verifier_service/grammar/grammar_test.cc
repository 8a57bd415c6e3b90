// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/grammar_tokens.h"
#include "tests/testing/paths.h"
#include "verifier_service/grammar/grammar_matcher.h"
#include "verifier_service/grammar/special_tokens.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int32_t kEnd = testing::kEndOfBytes;

std::shared_ptr<const Grammar> Compiled(GrammarKind kind, const std::string& text) {
  auto grammar = Grammar::Compile({.kind = kind, .text = text}, GrammarVocabulary(testing::ByteTokens()));
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *grammar;
}

std::string ErrorOf(GrammarKind kind, const std::string& text) {
  const auto grammar = Grammar::Compile({.kind = kind, .text = text}, GrammarVocabulary(testing::ByteTokens()));
  EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(grammar.status().message());
}

TEST(Grammar, TakesTextsOfItsFormOnly) {
  struct Case {
    GrammarKind kind;
    std::string form;
    std::vector<std::string> in, out;
  };
  const std::string person = R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},
                                "required":["name","age"],"additionalProperties":false})";
  const Case cases[] = {
      {GrammarKind::kRegex, "[0-9]+(px|em)", {"1px", "20em"}, {"", "px", "1p", "1pxx", "a"}},
      {GrammarKind::kRegex, "", {""}, {"a"}},
      {GrammarKind::kEbnf, "root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "()", "x)"}},
      {GrammarKind::kJsonSchema,
       person,
       {R"({"name": "A", "age": 3})"},
       {R"({"age": 3, "name": "A"})", R"({"name": "A"})", R"({ "name": "A", "age": 3})",
        R"({"name": "A", "age": "3"})"}},
      {GrammarKind::kJsonSchema,
       R"({"type":"integer","multipleOf":7})",
       {"0", "7", "-14", "700", "12345676"},
       {"1", "-13", "12345675", "7.0", "\"7\""}},
      {GrammarKind::kJsonSchema,
       R"({"type":"integer","multipleOf":7,"minimum":-10,"exclusiveMaximum":14})",
       {"-7", "0", "7"},
       {"-14", "1", "14", "-10"}},
      {GrammarKind::kJsonSchema, R"({"type":"array","minItems":2})", {"[1, {}]", "[1, 2, 3]"}, {"[]", "[1]"}},
      {GrammarKind::kJsonSchema,
       R"({"type":"array","prefixItems":[{"type":"null"}],"minItems":2})",
       {"[null, 2]", "[null, 2, \"\"]"},
       {"[null]", "[1, 2]"}},
      {GrammarKind::kJsonSchema, R"({"properties":{"a":{},"b":false}})", {"{\"a\": 1}", "{}"}, {"{\"b\": 1}"}},
      {GrammarKind::kJsonSchema, R"({"type":"integer","minimum":1.5,"exclusiveMaximum":3.5})", {"2", "3"}, {"1", "4"}},
      {GrammarKind::kJsonSchema, "{}", {"1", "\"\"", "[1, {\"a\": null}]", "true"}, {"", "tru", "[1,", "[1}"}},
  };
  for (const Case& c : cases) {
    const auto grammar = Compiled(c.kind, c.form);
    for (const std::string& text : c.in) EXPECT_TRUE(testing::Matches(grammar, text)) << c.form << " and " << text;
    for (const std::string& text : c.out) EXPECT_FALSE(testing::Matches(grammar, text)) << c.form << " and " << text;
  }
}

TEST(Grammar, AStringHasAsManyCharactersAsItMay) {
  const auto text = [](int num_characters, const std::string& character = "é") {
    std::string repeated;
    for (int i = 0; i < num_characters; ++i) repeated += character;
    return absl::StrCat("\"", repeated, "\"");
  };
  for (const int most : {5, 20, 300}) {
    const std::string schema = absl::StrCat(R"({"type":"string","minLength":2,"maxLength":)", most, "}");
    for (const auto& grammar :
         {Compiled(GrammarKind::kJsonSchema, schema),
          Compiled(GrammarKind::kStructuralTag,
                   absl::StrCat(R"({"format":{"type":"json_schema","json_schema":)", schema, "}}"))}) {
      for (const int in : {2, 3, most - 1, most}) {
        EXPECT_TRUE(testing::Matches(grammar, text(in))) << most << " and " << in;
        EXPECT_TRUE(testing::Matches(grammar, text(in, "a"))) << most << " and " << in;
      }
      for (const int out : {0, 1, most + 1, most + 2}) EXPECT_FALSE(testing::Matches(grammar, text(out))) << out;
      EXPECT_FALSE(testing::Matches(grammar, "\"a\nb\""));
    }
  }
  const auto list = Compiled(GrammarKind::kJsonSchema, R"({"type":"array","items":{"type":"string","maxLength":10}})");
  EXPECT_TRUE(testing::Matches(list, absl::StrCat("[", text(10), ", ", text(0), ", ", text(10), "]")));
  EXPECT_FALSE(testing::Matches(list, absl::StrCat("[", text(10), ", ", text(11), "]")));
}

TEST(Grammar, AMaskLeavesOutTokensThatAreTooLongForAString) {
  GrammarTokens tokens = testing::ByteTokens();
  tokens.bytes['b'] = "bbbbbb";
  tokens.bytes['c'] = "cccc\"";
  const auto grammar = Grammar::Compile(
      {.kind = GrammarKind::kJsonSchema, .text = R"({"type":"string","maxLength":10})"}, GrammarVocabulary(tokens));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  GrammarMatcher matcher(*grammar);
  for (const char c : std::string("\"aaaa")) ASSERT_TRUE(matcher.Accept(c));
  EXPECT_THAT(testing::AllowedIds(matcher), ::testing::IsSupersetOf({int{'a'}, int{'b'}, int{'c'}, int{'"'}}));
  ASSERT_TRUE(matcher.Accept('b'));
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre('"'));
  matcher.Rollback(1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(matcher.Accept('a'));
  EXPECT_THAT(testing::AllowedIds(matcher),
              ::testing::AllOf(::testing::Contains('c'), ::testing::Not(::testing::Contains('b'))));
  ASSERT_TRUE(matcher.Accept('a'));
  EXPECT_THAT(testing::AllowedIds(matcher), ::testing::Not(::testing::Contains('b')));
  matcher.Rollback(3);
  EXPECT_TRUE(matcher.Accept('b'));
}

TEST(Grammar, ADotIsNoLineFeed) {
  for (const char* const pattern : {"a.b", "a(?:.)b", "a.{1,2}b", "(a.){1,200}b"}) {
    const GrammarSource tag = {.kind = GrammarKind::kStructuralTag,
                               .text = absl::StrCat(R"({"format":{"type":"regex","pattern":")", pattern, "\"}}")};
    for (const GrammarSource& source : {GrammarSource{.kind = GrammarKind::kRegex, .text = pattern}, tag}) {
      const auto grammar = Compiled(source.kind, source.text);
      for (const std::string text : {"a.b", "aéb", "a\rb", "a\tb"}) {
        EXPECT_TRUE(testing::Matches(grammar, text)) << source.text << " and " << text;
      }
      EXPECT_FALSE(testing::Matches(grammar, "a\nb")) << source.text;
    }
  }
  EXPECT_TRUE(testing::Matches(Compiled(GrammarKind::kRegex, "a[.\\n]\\."), "a\n."));
}

TEST(Grammar, ATriggerMayHaveBrackets) {
  const auto grammar = Compiled(GrammarKind::kStructuralTag, R"({"type":"structural_tag","format":{
      "type":"triggered_tags","triggers":["[CALL]"],"tags":[{"begin":"[CALL]","end":"[/CALL]",
      "content":{"type":"json_schema","json_schema":{"type":"boolean"}}}]}})");
  EXPECT_TRUE(testing::Matches(grammar, "so: [CALL]true[/CALL]"));
  EXPECT_TRUE(testing::Matches(grammar, "nothing to call"));
  EXPECT_FALSE(testing::Matches(grammar, "[CALL]3[/CALL]"));
}

// JSON writes quotes, backslashes and control characters of a string as escapes.
TEST(Grammar, AStringHasNoCharacterThatJsonEscapes) {
  const std::string outside[] = {"\"\t\"", "\"\n\"", std::string("\"\0\"", 3), "\"\x1f\"", "\"\"\"", "\"\\\""};
  for (const char* const schema :
       {R"({"type":"string"})", R"({"type":"string","maxLength":3})", R"({"type":"string","pattern":"^.$"})",
        R"({"type":"string","pattern":"[^a]"})", R"({"type":"string","pattern":"^(\\s|\\S|\\u00e9)$"})",
        R"({"type":"string","pattern":"^.{1,200}$"})", R"({"type":"string","pattern":"^((.|x)a?){1,130}$"})",
        R"({"type":"string","pattern":"^[^a]{0,1}([^\\S]{1,200}|\\D){1,150}$"})"}) {
    const auto grammar = Compiled(GrammarKind::kJsonSchema, schema);
    EXPECT_TRUE(testing::Matches(grammar, "\" \"")) << schema;
    EXPECT_TRUE(testing::Matches(grammar, "\"é\"")) << schema;
    for (const std::string& text : outside) EXPECT_FALSE(testing::Matches(grammar, text)) << schema << " and " << text;
  }
  for (const char* const pattern : {R"(^[^é]$)", R"(^.é$)", R"(^a\"b$)", R"(^a\\\\b$)", R"(^\\t$)", R"(^[\"]$)"}) {
    EXPECT_THAT(ErrorOf(GrammarKind::kJsonSchema, absl::StrCat(R"({"type":"string","pattern":")", pattern, "\"}")),
                HasSubstr("pattern: expected ASCII"))
        << pattern;
  }
  EXPECT_THAT(ErrorOf(GrammarKind::kJsonSchema, R"({"type":"string","pattern":"\\bé"})"), HasSubstr("Word boundary"));
}

TEST(Grammar, ASchemaThatWouldBePassedOverIsRefusedWithItsPlace) {
  EXPECT_THAT(ErrorOf(GrammarKind::kJsonSchema, R"({"properties":{"a":{"type":"array","uniqueItems":true}}})"),
              HasSubstr("properties.a: uniqueItems: is not supported"));
}

TEST(Grammar, AChoiceTakesEachOfItsTextsLiterally) {
  const std::string texts[] = {"yes", "a\"b\\c\n", "Grüße €", "[x]*", "%41"};
  const GrammarSource source = ChoiceOf(texts);
  const auto grammar = Compiled(source.kind, source.text);
  for (const std::string& text : texts) EXPECT_TRUE(testing::Matches(grammar, text)) << text;
  for (const std::string text : {"ye", "", "x", "A", "[x]", "yesyes"}) EXPECT_FALSE(testing::Matches(grammar, text));
}

TEST(Grammar, AFormWithoutAnyTextIsRefused) {
  EXPECT_THAT(ErrorOf(GrammarKind::kEbnf, "root ::= a\na ::= b\nb ::= a"), HasSubstr("a form that some text has"));
}

TEST(Grammar, AnErrorNamesThePlace) {
  EXPECT_THAT(ErrorOf(GrammarKind::kEbnf, "root ::= \"a\n"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf(GrammarKind::kEbnf, "root ::= missing"), HasSubstr("missing"));
  EXPECT_FALSE(ErrorOf(GrammarKind::kRegex, "(a").empty());
  EXPECT_FALSE(ErrorOf(GrammarKind::kJsonSchema, "{\"type\":").empty());
  EXPECT_FALSE(ErrorOf(GrammarKind::kJsonSchema, "{\"type\":\"thing\"}").empty());
  EXPECT_FALSE(ErrorOf(GrammarKind::kStructuralTag, "[]").empty());
  EXPECT_THAT(ErrorOf(GrammarKind::kEbnf, ""), ::testing::Not(HasSubstr(".cc")));
  EXPECT_THAT(ErrorOf(GrammarKind::kStructuralTag, R"({"format":{"type":"thing"}})"),
              StartsWith("Invalid structural tag"));
  for (const char* const bounds : {"{2147483648}", "{0,2147483648}", "{2147483648,}", "{1,4294967297}"}) {
    EXPECT_THAT(ErrorOf(GrammarKind::kRegex, absl::StrCat("a", bounds)), HasSubstr("Repetition count is too large"));
  }
  EXPECT_THAT(ErrorOf(GrammarKind::kJsonSchema, R"({"const":1e400})"), HasSubstr("not valid JSON"));
}

TEST(Grammar, AnExpressionWithAnInnerAnchorIsRefused) {
  EXPECT_EQ(ErrorOf(GrammarKind::kRegex, "a^b"), "anchors are not supported inside");
  EXPECT_EQ(ErrorOf(GrammarKind::kStructuralTag, R"({"format":{"type":"regex","pattern":"a^b"}})"),
            "pattern: anchors are not supported inside");
}

TEST(Grammar, RefusesLimitsThatCountTokens) {
  EXPECT_THAT(ErrorOf(GrammarKind::kEbnf, "root ::= a \"!\"\na[max_tokens=3] ::= [a-z]*"), HasSubstr("attributes"));
}

TEST(Grammar, ACopyThatWasSerializedIsEqual) {
  const auto grammar = Compiled(GrammarKind::kJsonSchema, R"({"type":"array","items":{"enum":["ab","cd"]}})");
  const auto copy = Grammar::Parse(grammar->Serialize(), GrammarVocabulary(testing::ByteTokens()));
  ASSERT_TRUE(copy.ok()) << copy.status();
  for (const std::string text : {"[]", "[\"ab\"]", "[\"ab\", \"cd\"]"}) {
    EXPECT_TRUE(testing::Matches(grammar, text)) << text;
    EXPECT_TRUE(testing::Matches(*copy, text)) << text;
  }
  EXPECT_FALSE(testing::Matches(*copy, "[\"ac\"]"));
  EXPECT_FALSE(Grammar::Parse("{}", GrammarVocabulary(testing::ByteTokens())).ok());
}

TEST(Grammar, ASchemaThatCannotBeCheckedIsRefused) {
  std::string deep = R"({"type": "array", "uniqueItems": true})";
  for (int i = 0; i < 64; ++i) deep = absl::StrCat(R"({"type": "array", "items": )", deep, "}");
  EXPECT_THAT(ErrorOf(GrammarKind::kJsonSchema, deep), HasSubstr("at most 64 nested levels"));
}

TEST(Grammar, HolesAreNeverPartOfAForm) {
  GrammarTokens tokens = testing::ByteTokens();
  tokens.bytes['b'].clear();
  const auto grammar = Grammar::Compile({.kind = GrammarKind::kRegex, .text = "[a-c]"}, GrammarVocabulary(tokens));
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher(*grammar);
  EXPECT_THAT(testing::AllowedIds(matcher), ElementsAre('a', 'c'));
  EXPECT_FALSE(matcher.Accept('b'));
}

// All bytes of texts, and two special tokens.
class SpecialTokens : public ::testing::Test {
 protected:
  static constexpr int32_t kCall = kEnd + 1, kArgs = kEnd + 2;

  SpecialTokens() {
    GrammarTokens tokens = testing::ByteTokens();
    tokens.bytes[0xFF].clear();
    for (const char* spelling : {"[CALL]", "[ARGS]"}) {
      tokens.bytes.push_back(absl::StrCat(std::string(1, kSpecialMark), spelling));
    }
    vocabulary_.emplace(tokens);
  }
  GrammarMatcher Matcher(GrammarKind kind, const std::string& text) {
    const auto grammar = Grammar::Compile({.kind = kind, .text = text}, *vocabulary_);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    // As it comes to the verifier.
    return GrammarMatcher(*Grammar::Parse((*grammar)->Serialize(), *vocabulary_));
  }
  static std::vector<int32_t> Next(GrammarMatcher& matcher) { return testing::AllowedIds(matcher, kArgs + 1); }
  static void Say(GrammarMatcher& matcher, const std::string& text) {
    for (const char c : text) EXPECT_TRUE(matcher.Accept(static_cast<unsigned char>(c))) << text << " at " << c;
  }

  std::optional<GrammarVocabulary> vocabulary_;
};

TEST_F(SpecialTokens, AreNotTheTextThatTheySpell) {
  const std::pair<GrammarKind, std::string> forms[] = {{GrammarKind::kRegex, "\\[CALL\\].*"},
                                                       {GrammarKind::kEbnf, "root ::= \"[CALL]\" [^x]*"},
                                                       {GrammarKind::kJsonSchema, R"({"type": "string"})"}};
  for (const auto& [kind, form] : forms) {
    GrammarMatcher matcher = Matcher(kind, form);
    EXPECT_FALSE(matcher.Accept(kCall)) << form;
    Say(matcher, kind == GrammarKind::kJsonSchema ? "\"[CALL]" : "[CALL]");
    EXPECT_THAT(Next(matcher), ::testing::AllOf(::testing::Contains('a'), ::testing::Not(::testing::Contains(kCall))));
    EXPECT_FALSE(matcher.Accept(kArgs)) << form;
  }
}

TEST_F(SpecialTokens, ComeWhereATagSpellsThem) {
  GrammarMatcher matcher = Matcher(GrammarKind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"tag",
      "begin":"[CALL]f\u005bARGS]","content":{"type":"json_schema","json_schema":{"enum":["[CALL]"]}},"end":"!"}})");
  EXPECT_THAT(Next(matcher), ElementsAre(kCall));
  ASSERT_TRUE(matcher.Accept(kCall));
  EXPECT_THAT(Next(matcher), ElementsAre('f'));
  Say(matcher, "f");
  EXPECT_THAT(Next(matcher), ElementsAre(kArgs));
  ASSERT_TRUE(matcher.Accept(kArgs));
  Say(matcher, "\"[CALL]\"!");  // a schema's text is text
  EXPECT_THAT(Next(matcher), ElementsAre(kEnd));
  matcher.Rollback(12);
  EXPECT_THAT(Next(matcher), ElementsAre(kCall));
}

TEST_F(SpecialTokens, TriggerTags) {
  GrammarMatcher matcher = Matcher(GrammarKind::kStructuralTag, R"({"format":{"type":"triggered_tags",
      "triggers":["[CALL]"],"tags":[{"begin":"[CALL]f","content":{"type":"const_string","value":"?!"},"end":""}]}})");
  Say(matcher, "so [CALL]g ");  // the spelling alone calls nobody
  ASSERT_TRUE(matcher.Accept(kCall));
  EXPECT_THAT(Next(matcher), ElementsAre('f'));
  Say(matcher, "f?! and ");
  EXPECT_TRUE(matcher.Accept(kEnd));
}

TEST_F(SpecialTokens, ComeWhereAFormNamesTheToken) {
  const std::pair<GrammarKind, std::string> forms[] = {
      {GrammarKind::kEbnf, absl::StrCat("root ::= Token(", kCall, ") \"a\"")},
      {GrammarKind::kStructuralTag, R"({"format":{"type":"sequence","elements":[{"type":"token","token":"[CALL]"},
                                       {"type":"const_string","value":"a"}]}})"},
      {GrammarKind::kStructuralTag, absl::StrCat(R"({"format":{"type":"sequence","elements":[{"type":"token","token":)",
                                                 kCall, R"(},{"type":"const_string","value":"a"}]}})")}};
  for (const auto& [kind, form] : forms) {
    GrammarMatcher matcher = Matcher(kind, form);
    EXPECT_THAT(Next(matcher), ElementsAre(kCall)) << form;
    ASSERT_TRUE(matcher.Accept(kCall)) << form;
    EXPECT_THAT(Next(matcher), ElementsAre('a')) << form;
  }
}

TEST_F(SpecialTokens, AreMarkedInTheVocabularyAndEndsAreNot) {
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const tokenizer::Vocabulary& vocabulary = tokenizer->vocabulary();
  const std::vector<int32_t> ends = {4092};
  const GrammarTokens tokens = TokensOf(vocabulary, 4096, ends);
  int num_special = 0;
  for (int32_t id = 0; id < 4096; ++id) {
    const tokenizer::Token* const token = vocabulary.Find(id);
    const bool is_special = token != nullptr && token->special && id != 4092;
    num_special += is_special ? 1 : 0;
    EXPECT_EQ(!tokens.bytes[id].empty() && tokens.bytes[id].front() == kSpecialMark, is_special) << id;
  }
  EXPECT_GT(num_special, 0);
  EXPECT_EQ(tokens.bytes[4092], "");
}

}  // namespace
}  // namespace foretoken::verifier
