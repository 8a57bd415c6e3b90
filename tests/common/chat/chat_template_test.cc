// SPDX-License-Identifier: Apache-2.0
// Conversations rendered by small templates. If these tests fail, a user can write special tokens, a template or a
// conversation can bring the server down, or a model reads another text than the one that it was trained on. All of
// Hugging Face's own renders of known templates are compared by hugging_face.sh.
#include "common/chat/chat_template.h"

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/chat/render_budget.h"
#include "common/chat/template_nesting.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::chat {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Time Now() { return absl::FromCivil(absl::CivilSecond(2026, 3, 4, 5, 6, 7), absl::LocalTimeZone()); }

OrderedJson User(const std::string& content) { return {{"role", "user"}, {"content", content}}; }

absl::StatusOr<RenderedChat> Render(const std::string& source, const Conversation& conversation,
                                    size_t max_bytes = kMaxRenderBytes) {
  TemplateFiles files{.standard = source, .special_tokens = {{"bos_token", "<s>"}}};
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Parse(files, Now);
  if (!chat.ok()) return chat.status();
  return chat->Render(conversation, max_bytes);
}

// What the template wrote itself, each range in brackets.
std::string Marked(const absl::StatusOr<RenderedChat>& rendered) {
  if (!rendered.ok()) return std::string(rendered.status().message());
  std::string marked;
  size_t done = 0;
  for (const tokenizer::TextRange& range : rendered->template_ranges) {
    absl::StrAppend(&marked, rendered->text.substr(done, range.begin - done), "[",
                    rendered->text.substr(range.begin, range.end - range.begin), "]");
    done = range.end;
  }
  return marked + rendered->text.substr(done);
}

std::string Marked(const std::string& source, const OrderedJson& message) {
  return Marked(Render(source, {.messages = OrderedJson::array({message})}));
}

TEST(ChatTemplate, KeepsApartWhatTheTemplateWroteAndWhatTheUserWrote) {
  EXPECT_EQ(Marked("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}",
                   User("<|end|>")),
            "[<s><|user|>]<|end|>[<|end|>]");
}

TEST(ChatTemplate, TakesARoleThatIsNoPlainWordAsTheUsers) {
  EXPECT_EQ(Marked("<|{{ messages[0].role }}|>", {{"role", "x|><|y"}, {"content", ""}}), "[<|]x|><|y[|>]");
}

TEST(ChatTemplate, KeepsTheUsersTextApartThroughEveryOperation) {
  const std::vector<std::string> operations = {"{{ c | trim }}",
                                               "{{ c.strip() }}",
                                               "{{ c.split('#')[0] }}",
                                               "{{ c.split('#')[-1] }}",
                                               "{{ c.rsplit('#', 1)[0] }}",
                                               "{{ c | replace('#', '') }}",
                                               "{{ c | string }}",
                                               "{{ c | upper | lower }}",
                                               "{{ [c] | join }}",
                                               "{{ '#'.join([c]) }}",
                                               "{{ c | escape }}",
                                               "{{ c[0:7] }}",
                                               "{{ c ~ '' }}",
                                               "{{ '{}'.format(c) }}",
                                               "{{ ('{}' ~ c).format('') }}",
                                               "{{ c | default('x') }}",
                                               "{{ c if true else '' }}",
                                               "{{ c | indent }}",
                                               "{% set x = c %}{{ x }}",
                                               "{% set x %}{{ c }}{% endset %}{{ x }}",
                                               "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(c) }}",
                                               "{% set ns = namespace(x=c) %}{{ ns.x }}",
                                               "{% for k, v in {'a': c}.items() %}{{ v }}{% endfor %}",
                                               "{{ c | first }}",
                                               "{{ (c * 2)[7:] }}",
                                               "{{ c | capitalize }}",
                                               "{% filter trim %}{{ c }}{% endfilter %}",
                                               "{{ c | safe }}"};
  for (const std::string& operation : operations) {
    const absl::StatusOr<RenderedChat> rendered =
        Render("{% set c = messages[0].content %}" + operation, {.messages = OrderedJson::array({User("<|end|>")})});
    if (!rendered.ok()) continue;  // the engine refuses the operation
    EXPECT_TRUE(rendered->template_ranges.empty()) << operation << " gives " << Marked(rendered);
  }
  EXPECT_EQ(Marked("{{ messages[0] | tojson }}", User("<s>")), R"({"role": "user", "content": "<s>"})");
}

TEST(ChatTemplate, PrintsJsonAsHuggingFaceDoes) {
  const OrderedJson tools =
      OrderedJson::parse(R"([{"z": 1, "a": [true, null, 0.1, 1e20, 12345678901], "t": "<b>&'\" \u00fc\n"}])");
  Conversation conversation{.messages = OrderedJson::array({User("x")}), .tools = tools};
  EXPECT_EQ(Render("{{ tools | tojson }}", conversation)->text,
            "[{\"z\": 1, \"a\": [true, null, 0.1, 1e+20, 12345678901], \"t\": \"<b>&'\\\" \u00fc\\n\"}]");
}

TEST(ChatTemplate, TellsTheTimeOfItsClock) {
  EXPECT_EQ(Marked("{{ strftime_now('%d %b %Y %H:%M') }}", User("")), "04 Mar 2026 05:06");
}

TEST(ChatTemplate, PassesOnWhyATemplateRefuses) {
  const auto refused = Render("{{ raise_exception('roles must alternate') }}", {.messages = {User("x")}});
  EXPECT_EQ(refused.status(), absl::InvalidArgumentError("the chat template says: roles must alternate"));
  const auto failed = Render("{{ messages[0].content + 1 / 'x' }}", {.messages = {User("x")}});
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, RefusesATemplateThatCannotBeParsed) {
  EXPECT_FALSE(Render("{% for m in messages %}", {}).ok());
  EXPECT_FALSE(Render("{{ '", {}).ok());
  EXPECT_FALSE(Render("{{ nothing() }}", {}).ok());
}

// The Jinja engine checks the parts of a statement by assertions, which release builds leave out. Such a template would
// then be rendered with a part that does not exist.
TEST(ChatTemplate, RefusesStatementsOfTheWrongParts) {
  for (const char* source :
       {"{{ f(1=2) }}", "{{ f(a.b=2) }}", "{% for 1 in messages %}{% endfor %}", "{{ messages | 1 }}",
        "{% macro 1() %}{% endmacro %}", "{{ 1 is 2 }}", "{% call 1 %}{% endcall %}"}) {
    const absl::Status status = ChatTemplate::Parse({.standard = source}, Now).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << source;
  }
}

std::string Repeated(absl::string_view text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) absl::StrAppend(&repeated, text);
  return repeated;
}

// A template that uses up the stack would end the process while it loads a model.
TEST(ChatTemplate, RefusesATemplateThatIsNestedTooDeep) {
  constexpr int kDeep = 100'000;
  const std::string deep[] = {"{{ " + Repeated("(", kDeep) + "1" + Repeated(")", kDeep) + " }}",
                              "{{ " + Repeated("[", kDeep) + Repeated("]", kDeep) + " }}",
                              "{{ " + Repeated("{1:", kDeep) + "1" + Repeated("}", kDeep) + " }}",
                              "{{ " + Repeated("not ", kDeep) + "1 }}",
                              "{{ " + Repeated("-", kDeep) + "1 }}",
                              "{{ 1" + Repeated(" if 1 else 1", kDeep) + " }}",
                              "{{ 1" + Repeated(" + 1", kDeep) + " }}",
                              "{{ " + Repeated("(", kDeep),
                              Repeated("{% if 1 %}", kDeep) + Repeated("{% endif %}", kDeep),
                              Repeated("{% for a in b %}", kDeep) + Repeated("{% endfor %}", kDeep),
                              Repeated("{% set a %}", kDeep) + Repeated("{% endset %}", kDeep),
                              Repeated("{% set a(b=1) %}", kDeep),
                              "{% if 1 %}" + Repeated("{% elif 1 %}", kDeep) + "{% endif %}",
                              Repeated("{% if 1 %}{% endgeneration %}", kDeep)};
  for (const std::string& source : deep) {
    const absl::Status status = ChatTemplate::Parse({.standard = source}, Now).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("chat template: expected at most")) << source.substr(0, 20);
  }
  const std::string as_deep_as_allowed = Repeated("{% if 1 %}", kMaxOpenBlocks) + "{{ " +
                                         Repeated("(", kMaxOpenBrackets) + "1" + Repeated(")", kMaxOpenBrackets) +
                                         " }}" + Repeated("{% endif %}", kMaxOpenBlocks);
  const std::string long_but_flat = Repeated("{% if 1 %}{% set a = 1 %}{% elif 1 %}{% else %}{% endif %}", 1000);
  for (const std::string& source : {as_deep_as_allowed, long_but_flat}) {
    EXPECT_TRUE(ChatTemplate::Parse({.standard = source}, Now).ok()) << source.substr(0, 20);
  }
}

TEST(ChatTemplate, BoundsWorkMemoryAndDepth) {
  const std::vector<std::string> bombs = {
      "{% for i in range(1000000000) %}x{% endfor %}", "{{ 'x' * 100000000000 }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"};
  for (const std::string& bomb : bombs) {
    EXPECT_THAT(Marked(Render(bomb, {.messages = {User("x")}})), HasSubstr("too much work")) << bomb;
  }
}

// A value that holds itself, or others a hundred thousand deep, would fill the stack.
TEST(ChatTemplate, BoundsTheDepthOfValues) {
  const Conversation conversation{.messages = OrderedJson::array({User("x")})};
  const auto renders = [&](const std::string& source) { return Render(source, conversation).ok(); };
  const std::string list = "{% set l = [] %}{% set _ = l.append(l) %}";
  for (const char* use : {"{{ l }}", "{{ l | tojson }}", "{{ l | string }}", "{{ l ~ 'x' }}", "{{ [l, l] | sort }}",
                          "{{ 'x' + (l | string) }}", "{{ l | join(',') }}"}) {
    EXPECT_FALSE(renders(list + use)) << use;
  }
  EXPECT_TRUE(renders(list + "{{ l | length }}{{ l == l }}{{ l in [l] }}"));
  EXPECT_FALSE(renders("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns | tojson }}"));
  const auto deep = [](int depth) {
    return absl::StrCat("{% set ns = namespace(x=[]) %}{% for i in range(", depth,
                        ") %}{% set ns.x = [ns.x] %}{% endfor %}");
  };
  for (const char* use : {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}"}) {
    EXPECT_TRUE(renders(deep(300) + use)) << use;
    EXPECT_FALSE(renders(deep(90'000) + use)) << use;
  }
  EXPECT_TRUE(renders(deep(90'000) + "{{ ns.x == ns.x }}"));
  EXPECT_FALSE(renders(deep(150'000)));  // too much work, and the values that there are end without a crash
}

// What published templates do for each tool or call. The time is quadratic in the length of the list.
const char* const kGrowingLoops[] = {
    "{% set ns = namespace(s='') %}{% for t in tools %}{% set ns.s = ns.s + '\n' + (t | tojson) %}{% endfor %}{{ ns.s "
    "}}",
    "{% set ns = namespace(s='[') %}{% for t in tools %}{% set ns.s = ns.s + (t | tojson) %}{% if not loop.last %}"
    "{% set ns.s = ns.s + ', ' %}{% endif %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s='') %}{% for t in tools %}{% set ns.s = ns.s ~ '<call>' ~ (t | tojson) ~ '</call>' %}"
    "{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(l=[]) %}{% for t in tools %}{% set ns.l = ns.l + [t] %}{% endfor %}{{ ns.l | length }}",
    "{% for t in tools %}{% set rest = tools[loop.index0:] %}{{ rest | length }}{% endfor %}",
    "{% for t in tools %}{% for u in tools %}{% break %}{% endfor %}{% endfor %}",
    "{% for t in tools %}{{ 1 if 'x' in tools }}{% endfor %}",
};

Conversation WithTools(int num_tools) {
  Conversation conversation{.messages = OrderedJson::array({User("x")}), .tools = OrderedJson::array()};
  for (int i = 0; i < num_tools; ++i) conversation.tools.push_back(OrderedJson::object());
  return conversation;
}

TEST(ChatTemplate, ChargesEveryCopyOfWhatGrowsInALoop) {
  constexpr size_t kMaxBytes = size_t{24} << 20;
  for (const char* loop : kGrowingLoops) {
    EXPECT_TRUE(Render(loop, WithTools(100), kMaxBytes).ok()) << loop;
    EXPECT_THAT(Marked(Render(loop, WithTools(2000), kMaxBytes)), HasSubstr("too much work")) << loop;
  }
}

// Less than a second each, without sanitizers. It was half a minute, because most copies were not charged.
TEST(ChatTemplate, AnyLengthOfAListTakesBoundedTime) {
  for (const char* loop : kGrowingLoops) {
    const absl::Time begin = absl::Now();
    const absl::StatusOr<RenderedChat> rendered = Render(loop, WithTools(32'000));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(30)) << loop << " " << rendered.status();
  }
}

TEST(ChatTemplate, StripsManySpacesInLinearTime) {
  const Conversation conversation{.messages = OrderedJson::array({User("\n")})};
  const std::string spaces =
      "{% set s %}{% for i in range(100000) %}{{ ' ' ~ messages[0].content }}{% endfor %}{% endset %}";
  EXPECT_EQ(Render(spaces + "{{ s.lstrip() }}{{ s.rstrip() }}{{ s | trim }}x", conversation)->text, "x");
}

TEST(ChatTemplate, AnIterationDoesNotSeeWhatAnotherOneHasSet) {
  const auto rendered = [](const std::string& source) { return Marked(source, User("")); };
  EXPECT_EQ(rendered("{% set x = 1 %}{% for i in [1, 2, 3] %}{{ x }}{% set x = x + 1 %}{% endfor %}{{ x }}"), "1111");
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{{ y is defined }}{% set y = 1 %}{% endfor %}"), "FalseFalse");
}

TEST(ChatTemplate, JoinsAListByATextsMethod) {
  const auto rendered = [](const std::string& source) {
    return Marked(source, {{"role", "user"}, {"content", {"a", "b"}}});
  };
  EXPECT_EQ(rendered("{{ ', '.join(messages[0].content) }}"), "a, b");
  EXPECT_EQ(rendered("{{ ', '.join([]) }}{{ messages[0].content | join(' ') }}"), "a b");
}

TEST(ChatTemplate, EscapesNothing) {
  EXPECT_EQ(Marked("{{ messages[0].content | escape }}{{ messages[0].content | e }}{{ '<|x|>' | e }}", User("<b>&")),
            "<b>&<b>&[<|x|>]");
}

TEST(ChatTemplate, SortsAsPythonDoes) {
  const OrderedJson list = {
      {{"k", 1}, {"v", "a"}}, {{"k", 0}, {"v", "b"}}, {{"k", 1}, {"v", "c"}}, {{"k", 0}, {"v", "d"}}};
  Conversation conversation{.messages = OrderedJson::array({User("")}), .tools = OrderedJson::array()};
  for (int i = 0; i < 10; ++i) conversation.tools.insert(conversation.tools.end(), list.begin(), list.end());
  EXPECT_EQ(Render("{{ tools | sort(attribute='k') | map(attribute='v') | join }}", conversation)->text,
            "bdbdbdbdbdbdbdbdbdbdacacacacacacacacacac");
}

TEST(ChatTemplate, TakesLinearTimeToCutALongText) {
  std::string content;
  while (content.size() < (size_t{4} << 20)) content += "</think>";
  Conversation conversation{.messages = OrderedJson::array({User(content)})};
  // Quadratic time would be minutes.
  EXPECT_EQ(Render("{{ messages[0].content.split('</think>')[-1] ~ 'x' }}", conversation)->text, "x");
  EXPECT_EQ(Render("{{ messages[0].content.replace('</think>', '') ~ 'x' }}", conversation)->text, "x");
}

// Python counts characters.
TEST(ChatTemplate, CutsTextsBetweenCharacters) {
  const auto rendered = [](const std::string& expression) {
    return Marked("{{ messages[0].content" + expression + " }}", User("h\u00e9llo\U0001f600"));
  };
  EXPECT_EQ(rendered("[:3]"), "h\u00e9l");
  EXPECT_EQ(rendered("[2:]"), "llo\U0001f600");
  EXPECT_EQ(rendered("[-2:]"), "o\U0001f600");
  EXPECT_EQ(rendered("[:-1]"), "h\u00e9llo");
  EXPECT_EQ(rendered("[::2]"), "hlo");
  EXPECT_EQ(rendered("[::-1]"), "\U0001f600oll\u00e9h");
  EXPECT_EQ(rendered("[1]"), "\u00e9");
  EXPECT_EQ(rendered("[-1]"), "\U0001f600");
  EXPECT_EQ(rendered("[6]"), "");
  EXPECT_EQ(rendered("|list|last"), "\U0001f600");
  EXPECT_EQ(rendered("|reverse"), "\U0001f600oll\u00e9h");
  EXPECT_EQ(rendered(".upper()"), "H\u00c9LLO\U0001f600");
  EXPECT_EQ(rendered(".find('l')"), "2");
  EXPECT_EQ(rendered(".find('x')"), "-1");
}

TEST(ChatTemplate, RendersOnManyThreadsAtOnce) {
  const auto chat = ChatTemplate::Parse({.standard = "{{ messages[0].content }}{{ strftime_now('%Y') }}"}, Now);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&chat, i] {
      const std::string content = absl::StrCat("thread ", i, " ");
      for (int repeat = 0; repeat < 100; ++repeat) {
        EXPECT_EQ(chat->Render({.messages = OrderedJson::array({User(content)})})->text, content + "2026");
      }
    });
  }
}

// Renders with the template of a checkpoint's files.
std::string RenderFrom(const std::string& directory, const Conversation& conversation = {}) {
  const absl::StatusOr<TemplateFiles> files = ReadTemplateFiles(directory);
  EXPECT_TRUE(files.ok()) << files.status();
  return ChatTemplate::Parse(*files, Now)->Render(conversation)->text;
}

TEST(ChatTemplate, PrefersTheFileOverTheTokenizersConfig) {
  const testing::TempDir dir;
  EXPECT_FALSE(ReadTemplateFiles(dir.path())->standard.has_value());
  dir.Write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}, "chat_template": "config {{ bos_token }}"})");
  EXPECT_EQ(RenderFrom(dir.path()), "config <b>");
  dir.Write("chat_template.jinja", "file {{ bos_token }}");
  EXPECT_EQ(RenderFrom(dir.path()), "file <b>");
}

TEST(ChatTemplate, TakesTheNamedTemplateForTools) {
  const testing::TempDir dir;
  dir.Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
                                                           {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(RenderFrom(dir.path()), "plain");
  EXPECT_EQ(RenderFrom(dir.path(), {.tools = OrderedJson::array()}), "tools");
  dir.Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(std::string(ReadTemplateFiles(dir.path()).status().message()),
              HasSubstr("tokenizer_config.json: chat_template: expected a text or a list of named texts"));
}

// As save_pretrained of transformers 4.57 writes named templates.
TEST(ChatTemplate, TakesTheTemplateForToolsFromItsOwnFile) {
  const testing::TempDir dir;
  dir.Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "old plain"},
                                                           {"name": "tool_use", "template": "old tools"}]})");
  dir.Write("chat_template.jinja", "plain");
  EXPECT_EQ(RenderFrom(dir.path(), {.tools = OrderedJson::array()}), "plain");
  std::filesystem::create_directory(dir.path() + "/additional_chat_templates");
  dir.Write("additional_chat_templates/tool_use.jinja", "tools");
  dir.Write("additional_chat_templates/rag.jinja", "other");
  EXPECT_EQ(RenderFrom(dir.path()), "plain");
  EXPECT_EQ(RenderFrom(dir.path(), {.tools = OrderedJson::array()}), "tools");
}

TEST(ChatTemplate, TakesTheDefaultTemplateFromTheFolderOfOthers) {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir.path() + "/additional_chat_templates");
  dir.Write("additional_chat_templates/default.jinja", "plain");
  EXPECT_EQ(RenderFrom(dir.path()), "plain");
  dir.Write("additional_chat_templates/tool_use.jinja", std::string(kMaxTemplateBytes + 1, 'x'));
  EXPECT_THAT(std::string(ReadTemplateFiles(dir.path()).status().message()),
              HasSubstr("expected a chat template of at most 1048576 bytes, got 1048577"));
}

}  // namespace
}  // namespace foretoken::chat
