// SPDX-License-Identifier: Apache-2.0
// The spans of a call. If this test fails, an operator sees time in the wrong place, or a trace without its end.
#include "verifier_service/api/call_trace.h"

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class CallTraceTest : public ::testing::Test {
 protected:
  CallTrace Begin(std::optional<tracing::TraceContext> caller = std::nullopt) {
    return CallTrace(tracer_, {.method = "p.S/M",
                               .caller = std::move(caller),
                               .peer = "ipv4:10.0.0.1:4711",
                               .model = "llama",
                               .traces_steps = true});
  }
  static absl::Time At(int ms) { return kStart + absl::Milliseconds(ms); }
  // An output with `num_accepted` guesses and one more token at this time.
  static SampleOutput Tokens(int ms, int num_accepted) {
    SampleOutput output = {.time = At(ms)};
    output.token_ids.resize(static_cast<size_t>(num_accepted) + 1);
    output.speculated.resize(static_cast<size_t>(num_accepted), true);
    output.speculated.push_back(false);
    return output;
  }
  static StepReport Step(int end_ms, double num_ms) {
    return {.step = {.step_idx = 7, .times = {.forward_ms = num_ms / 2, .wait_ms = num_ms / 2}, .end = At(end_ms)}};
  }
  const tracing::Span& Named(const std::string& name) const {
    const auto found = std::ranges::find(spans_, name, &tracing::Span::name);
    EXPECT_NE(found, spans_.end()) << name;
    return *found;
  }
  template <typename Value>
  static Value Attribute(const tracing::Span& span, const std::string& key) {
    const auto found = std::ranges::find(span.attributes, key, &tracing::Attribute::key);
    if (found == span.attributes.end()) throw std::out_of_range(key);
    return std::get<Value>(found->value);
  }
  static bool Has(const tracing::Span& span, const std::string& key) {
    return std::ranges::count(span.attributes, key, &tracing::Attribute::key) > 0;
  }
  // All attributes, as text.
  static std::map<std::string, std::string> Texts(const tracing::Span& span) {
    std::map<std::string, std::string> texts;
    for (const tracing::Attribute& attribute : span.attributes) {
      std::visit(
          [&](const auto& value) {
            using Value = std::decay_t<decltype(value)>;
            std::string& text = texts[std::string(attribute.key)];
            if constexpr (std::is_same_v<Value, bool>) {
              text = value ? "true" : "false";
            } else if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
              text = absl::StrCat(value);
            } else {
              text = absl::StrJoin(value, " ");
            }
          },
          attribute.value);
    }
    return texts;
  }
  static double Milliseconds(const tracing::Span& span) { return absl::ToDoubleMilliseconds(span.end - span.begin); }

  static inline const absl::Time kStart = SteadyNow() + absl::Hours(1);  // after each test's own times
  std::vector<tracing::Span> spans_;
  uint64_t next_id_ = 1;
  const tracing::Tracer tracer_{tracing::Sampler(), [this] { return next_id_++; },
                                [this](tracing::Span span) { spans_.push_back(std::move(span)); }};
};

TEST_F(CallTraceTest, AWholeCallHasItsPhasesOneAfterAnother) {
  CallTrace trace = Begin();
  trace.Submit({.request_id = "mine", .prompt = {1, 2}}, "llama");
  trace.Observe({.time = At(10), .began = At(5)});
  trace.Observe(Tokens(30, 0));
  trace.Observe(Tokens(50, 3));
  SampleOutput last = Tokens(60, 1);
  last.completion = SampleCompletion{.num_prompt_tokens = 2, .num_cached_tokens = 1, .num_steps = 3};
  trace.Observe(last);
  trace.End(absl::OkStatus());
  ASSERT_EQ(spans_.size(), 4u);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(Named("prompt").begin - Named("queue").end), 0, 1e-3);
  EXPECT_NEAR(Milliseconds(Named("prompt")), 25, 1e-3);
  EXPECT_NEAR(Milliseconds(Named("decode")), 30, 1e-3);
  const tracing::Span& call = Named("p.S/M");
  EXPECT_THAT(Attribute<std::vector<int64_t>>(call, "foretoken.speculation.accepted_lengths"), ElementsAre(3, 1));
  for (const tracing::Span& span : spans_) {
    if (&span == &call) continue;
    EXPECT_EQ(span.parent, call.context.span_id) << span.name;
  }
  EXPECT_EQ(Attribute<int64_t>(call, "gen_ai.usage.output_tokens"), 7);
  EXPECT_EQ(Attribute<int64_t>(call, "gen_ai.usage.input_tokens"), 2);
  EXPECT_EQ(Attribute<int64_t>(call, "gen_ai.usage.cache_read.input_tokens"), 1);
  EXPECT_EQ(Attribute<std::string>(call, "gen_ai.request.model"), "llama");
  EXPECT_EQ(Attribute<std::string>(call, "rpc.response.status_code"), "OK");
  EXPECT_EQ(Attribute<std::string>(call, "network.peer.address"), "10.0.0.1");
  EXPECT_EQ(Attribute<int64_t>(call, "network.peer.port"), 4711);
  EXPECT_FALSE(call.error.has_value());
}

TEST_F(CallTraceTest, StepsLieInTheirPhaseAndAddUpToTheDecode) {
  CallTrace trace = Begin();
  trace.Submit({}, "llama");
  SampleOutput chunk = {.time = At(10), .began = At(2)};
  chunk.steps = {Step(10, 20)};  // began before the sample: the span is cut
  trace.Observe(chunk);
  for (int ms = 20; ms <= 50; ms += 10) {
    SampleOutput output = Tokens(ms, 0);
    output.steps = {Step(ms, 10)};
    trace.Observe(output);
  }
  trace.End(absl::OkStatus());
  double in_prompt = 0, in_decode = 0;
  for (const tracing::Span& span : spans_) {
    if (span.name != "step") continue;
    (span.parent == Named("decode").context.span_id ? in_decode : in_prompt) += Milliseconds(span);
  }
  EXPECT_NEAR(in_prompt, 18, 1e-3);
  EXPECT_NEAR(in_decode, 30, 1e-3);
}

TEST_F(CallTraceTest, ReportsThatTheClientAskedForAreNoSpans) {
  CallTrace trace(tracer_, {.method = "p.S/M"});
  trace.Submit({}, "llama");
  SampleOutput output = Tokens(20, 0);
  output.began = At(0);
  output.steps = {Step(20, 10)};
  trace.Observe(output);
  trace.End(absl::OkStatus());
  EXPECT_EQ(std::ranges::count(spans_, "decode", &tracing::Span::name), 1);
  EXPECT_EQ(std::ranges::count(spans_, "step", &tracing::Span::name), 0);
}

TEST_F(CallTraceTest, AProposalIsThereOnceWithItsTimesAndWhetherItWasLate) {
  CallTrace trace = Begin();
  trace.Submit({}, "llama");
  SampleOutput output = Tokens(20, 0);
  output.began = At(0);
  StepReport step = Step(20, 10);
  step.position = 9;
  step.proposers = {{.name = "draft", .position = 8, .is_new = true, .asked = At(11), .arrived = At(13)},
                    {.name = "ngram", .position = 9}};
  output.steps = {step};
  trace.Observe(output);
  trace.End(absl::OkStatus());
  ASSERT_EQ(std::ranges::count(spans_, "proposal", &tracing::Span::name), 1);
  const tracing::Span& proposal = Named("proposal");
  EXPECT_EQ(proposal.kind, tracing::SpanKind::kClient);
  EXPECT_EQ(proposal.parent, Named("step").context.span_id);
  EXPECT_NEAR(Milliseconds(proposal), 2, 1e-3);
  EXPECT_TRUE(Attribute<bool>(proposal, "foretoken.proposal.is_late"));
}

TEST_F(CallTraceTest, AStepSaysAllThatItsReportDoes) {
  CallTrace trace = Begin();
  trace.Submit({}, "llama");
  SampleOutput prompt = Tokens(10, 0);
  prompt.began = At(0);
  trace.Observe(prompt);
  const StepReport step = {
      .step = {.step_idx = 7,
               .row_budget = 64,
               .forecast =
                   {.num_sequences = 3, .num_rows = 41, .num_prompt_rows = 20, .num_tree_rows = 18, .step_ms = 12.5f},
               .times = {.forward_ms = 5, .draw_ms = 2, .host_ms = 1, .wait_ms = 0.5},
               .end = At(20)},
      .position = 9,
      .num_context_rows = 4,
      .proposers =
          {{.name = "draft", .position = 9, .num_nodes = 3, .is_new = true, .asked = At(11), .arrived = At(13)},
           {.name = "suffix", .position = 8, .num_nodes = 1}},
      .node_budget = 16,
      .tree = {.token_ids = {1, 2, 3}, .planned = {true, true, false}},
      .accepted = {0},
      .token_ids = {1, 5},
      .draws = true,
      .expected_tokens = 1.5f,
      .asked_proposers = {"draft", "suffix", "mtp"},
      .resting_proposers = {"ngram"},
      .absent_proposers = {"dflash"},
      .refusing_proposers = {"eagle3"}};
  SampleOutput output = Tokens(20, 1);
  output.steps = {step};
  trace.Observe(output);
  trace.End(absl::OkStatus());
  std::map<std::string, std::string> expected = {{"foretoken.step.index", "7"},
                                                 {"foretoken.step.position", "9"},
                                                 {"foretoken.step.context_rows", "4"},
                                                 {"foretoken.step.node_budget", "16"},
                                                 {"foretoken.step.tree_nodes", "3"},
                                                 {"foretoken.step.verified_nodes", "2"},
                                                 {"foretoken.step.accepted", "1"},
                                                 {"foretoken.step.tokens", "2"},
                                                 {"foretoken.step.expected_tokens", "1.5"},
                                                 {"foretoken.step.asked_proposers", "draft suffix mtp"},
                                                 {"foretoken.step.late_proposers", "suffix mtp"},
                                                 {"foretoken.step.resting_proposers", "ngram"},
                                                 {"foretoken.step.absent_proposers", "dflash"},
                                                 {"foretoken.step.refusing_proposers", "eagle3"},
                                                 {"foretoken.step.batch.sequences", "3"},
                                                 {"foretoken.step.batch.row_budget", "64"},
                                                 {"foretoken.step.batch.rows", "41"},
                                                 {"foretoken.step.batch.prompt_rows", "20"},
                                                 {"foretoken.step.batch.tree_rows", "18"},
                                                 {"foretoken.step.expected_ms", "12.5"},
                                                 {"foretoken.step.forward_ms", "5"},
                                                 {"foretoken.step.draw_ms", "2"},
                                                 {"foretoken.step.host_ms", "1"},
                                                 {"foretoken.step.wait_ms", "0.5"}};
  EXPECT_EQ(Texts(Named("step")), expected);
  EXPECT_NEAR(Milliseconds(Named("step")), 8.5, 1e-3);
  expected = {{"foretoken.proposer", "draft"},
              {"foretoken.proposal.position", "9"},
              {"foretoken.proposal.usable_nodes", "3"},
              {"foretoken.proposal.is_late", "false"}};
  EXPECT_EQ(Texts(Named("proposal")), expected);
}

TEST_F(CallTraceTest, NobodyIsLateForTheFirstToken) {
  CallTrace trace = Begin();
  trace.Submit({}, "llama");
  SampleOutput output = Tokens(20, 0);
  output.began = At(0);
  output.steps = {Step(20, 10)};
  output.steps[0].asked_proposers = {"draft"};
  trace.Observe(output);
  trace.End(absl::OkStatus());
  EXPECT_TRUE(Has(Named("step"), "foretoken.step.asked_proposers"));
  EXPECT_FALSE(Has(Named("step"), "foretoken.step.late_proposers"));
}

TEST_F(CallTraceTest, ACallSaysWhatWasAskedForAndWhatItUsed) {
  CallTrace trace(tracer_,
                  {.method = "p.S/M", .authority = "llm.example:443", .peer = "ipv4:10.0.0.1:4711", .model = "theirs"});
  trace.Submit({.request_id = "mine",
                .tenant = "a",
                .priority = 2,
                .prompt = {1, 2, 3},
                .is_chat = true,
                .is_json = true,
                .sampling = {.temperature = 0.5f,
                             .top_k = 40,
                             .top_p = 0.75f,
                             .presence_penalty = 0.25f,
                             .frequency_penalty = -0.5f,
                             .seed = 7},
                .has_clients_seed = true,
                .num_samples = 2,
                .stop = {.max_tokens = 12},
                .speculation = {.mode = SpeculationMode::kAlways}},
               "llama");
  for (const int32_t sample : {0, 1}) {
    SampleOutput output = Tokens(10 + sample, 0);
    output.sample_index = sample;
    output.began = At(0);
    trace.Observe(output);
    output = Tokens(20 + sample, 2 + sample);
    output.sample_index = sample;
    output.completion = SampleCompletion{.finish_reason = sample == 0 ? FinishReason::kStop : FinishReason::kLength,
                                         .num_cached_tokens = 2,
                                         .speculation = {.num_proposed_nodes = 10, .num_verified_nodes = 6}};
    trace.Observe(output);
  }
  trace.End(absl::OkStatus());
  const tracing::Span& call = Named("p.S/M");
  std::map<std::string, std::string> texts = Texts(call);
  EXPECT_GT(Attribute<double>(call, "gen_ai.response.time_to_first_chunk"), 0);  // of a call that is streamed
  texts.erase("gen_ai.response.time_to_first_chunk");
  const std::map<std::string, std::string> expected = {{"network.peer.address", "10.0.0.1"},
                                                       {"network.peer.port", "4711"},
                                                       {"foretoken.priority", "2"},
                                                       {"foretoken.seed", "7"},
                                                       {"foretoken.speculation.accepted_lengths", "2 3"},
                                                       {"foretoken.speculation.accepted_tokens", "5"},
                                                       {"foretoken.speculation.mode", "always"},
                                                       {"foretoken.speculation.proposed_nodes", "20"},
                                                       {"foretoken.speculation.steps", "4"},
                                                       {"foretoken.speculation.verified_nodes", "12"},
                                                       {"foretoken.tenant", "a"},
                                                       {"gen_ai.operation.name", "chat"},
                                                       {"gen_ai.output.type", "json"},
                                                       {"gen_ai.provider.name", "foretoken"},
                                                       {"gen_ai.request.choice.count", "2"},
                                                       {"gen_ai.request.frequency_penalty", "-0.5"},
                                                       {"gen_ai.request.max_tokens", "12"},
                                                       {"gen_ai.request.model", "theirs"},
                                                       {"gen_ai.request.presence_penalty", "0.25"},
                                                       {"gen_ai.request.seed", "7"},
                                                       {"gen_ai.request.stream", "true"},
                                                       {"gen_ai.request.temperature", "0.5"},
                                                       {"gen_ai.request.top_k", "40"},
                                                       {"gen_ai.request.top_p", "0.75"},
                                                       {"gen_ai.response.finish_reasons", "stop length"},
                                                       {"gen_ai.response.id", "mine"},
                                                       {"gen_ai.response.model", "llama"},
                                                       {"gen_ai.usage.cache_read.input_tokens", "2"},
                                                       {"gen_ai.usage.input_tokens", "3"},
                                                       {"gen_ai.usage.output_tokens", "9"},
                                                       {"rpc.method", "p.S/M"},
                                                       {"rpc.response.status_code", "OK"},
                                                       {"rpc.system.name", "grpc"},
                                                       {"server.address", "llm.example"},
                                                       {"server.port", "443"}};
  EXPECT_EQ(texts, expected);
}

TEST_F(CallTraceTest, OnlyAStreamedCallHasAFirstChunk) {
  for (const bool is_streamed : {true, false}) {
    spans_.clear();
    CallTrace trace = Begin();
    trace.Submit({.is_streamed = is_streamed, .num_samples = 1}, "llama");
    SampleOutput output = Tokens(10, 0);
    output.began = At(0);
    trace.Observe(output);
    trace.End(absl::OkStatus());
    EXPECT_EQ(Has(Named("p.S/M"), "gen_ai.response.time_to_first_chunk"), is_streamed);
  }
}

TEST_F(CallTraceTest, EverySampleHasItsOwnPhases) {
  CallTrace trace = Begin();
  trace.Submit({.num_samples = 2}, "llama");
  for (int i = 0; i < 2; ++i) {
    trace.Observe({.sample_index = i, .time = At(1 + i), .began = At(i)});
    SampleOutput output = Tokens(10 + i, 0);
    output.sample_index = i;
    output.completion = SampleCompletion{};
    trace.Observe(output);
  }
  trace.End(absl::OkStatus());
  std::vector<int64_t> decoded;
  std::vector<absl::Time> prompts;
  for (const tracing::Span& span : spans_) {
    if (span.name == "prompt") prompts.push_back(span.begin);
    if (span.name == "decode") decoded.push_back(Attribute<int64_t>(span, "foretoken.sample_index"));
  }
  EXPECT_THAT(decoded, UnorderedElementsAre(0, 1));
  ASSERT_EQ(prompts.size(), 2);
  EXPECT_EQ(prompts[1] - prompts[0], At(1) - At(0)) << "the second sample had to wait for room";
  EXPECT_EQ(Attribute<std::vector<std::string>>(Named("p.S/M"), "gen_ai.response.finish_reasons").size(), 2u);
}

TEST_F(CallTraceTest, ASampleThatNeverBeganHasNoPhase) {
  CallTrace trace = Begin();
  trace.Submit({.num_samples = 2}, "llama");
  trace.Observe({.time = At(1), .began = At(0)});
  for (int i = 0; i < 2; ++i) {
    trace.Observe(
        {.sample_index = i, .time = At(5), .completion = SampleCompletion{.finish_reason = FinishReason::kAbort}});
  }
  trace.End(absl::UnavailableError("draining"));
  EXPECT_EQ(std::ranges::count(spans_, "prompt", &tracing::Span::name), 1);
}

TEST_F(CallTraceTest, ARefusedCallHasItsStatusAndOnlyServersFaultsAreErrors) {
  Begin().End(absl::InvalidArgumentError("bad"));
  EXPECT_EQ(Attribute<std::string>(Named("p.S/M"), "error.type"), "INVALID_ARGUMENT");
  EXPECT_FALSE(Named("p.S/M").error.has_value());
  spans_.clear();
  Begin().End(absl::InternalError("broken"));
  EXPECT_EQ(Named("p.S/M").error, "broken");
}

TEST_F(CallTraceTest, ARefusedCallSaysWhyAndForWhom) {
  CallTrace trace = Begin();
  trace.Name("its metadata's", "nobody");
  trace.Name("mine", "team");
  trace.End(base::WithReason(absl::ResourceExhaustedError("the queue is full"), "QUEUE_FULL"));
  const tracing::Span& refused = Named("p.S/M");
  EXPECT_EQ(Attribute<std::string>(refused, "error.type"), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Attribute<std::string>(refused, "foretoken.reason"), "QUEUE_FULL");
  EXPECT_EQ(Attribute<std::string>(refused, "foretoken.request_id"), "mine");
  EXPECT_EQ(Attribute<std::string>(refused, "foretoken.tenant"), "team");
  EXPECT_EQ(Attribute<std::string>(refused, "gen_ai.provider.name"), "foretoken");
  EXPECT_EQ(Attribute<std::string>(refused, "gen_ai.request.model"), "llama");
  EXPECT_EQ(Attribute<std::string>(refused, "gen_ai.operation.name"), "generate_content");
}

TEST_F(CallTraceTest, AnAcceptedCallIsNamedByItsAnswer) {
  CallTrace trace = Begin();
  trace.Name("mine", "team");
  trace.Submit({.request_id = "mine", .tenant = "team"}, "llama");
  trace.End(absl::InternalError("broken"));
  const tracing::Span& call = Named("p.S/M");
  EXPECT_EQ(Attribute<std::string>(call, "gen_ai.response.id"), "mine");
  EXPECT_EQ(Attribute<std::string>(call, "foretoken.tenant"), "team");
  EXPECT_EQ(Attribute<std::string>(call, "foretoken.reason"), "INTERNAL");
  EXPECT_FALSE(Has(call, "foretoken.request_id"));
  EXPECT_EQ(std::ranges::count(call.attributes, "foretoken.tenant", &tracing::Attribute::key), 1);
}

TEST_F(CallTraceTest, ARequestThatTheEngineRefusesIsNamedAsARefusedOne) {
  CallTrace trace = Begin();
  trace.Submit({.request_id = "mine", .prompt = {1, 2}}, "llama");
  trace.Withdraw();
  trace.End(base::WithReason(absl::ResourceExhaustedError("too short"), "DEADLINE_TOO_SHORT"));
  const tracing::Span& refused = Named("p.S/M");
  EXPECT_EQ(Attribute<std::string>(refused, "foretoken.request_id"), "mine");
  EXPECT_FALSE(Has(refused, "gen_ai.response.id"));
  EXPECT_FALSE(Has(refused, "gen_ai.usage.input_tokens"));
}

TEST_F(CallTraceTest, NamesThatAClientMayChooseAreCut) {
  CallTrace trace = Begin();
  trace.Name(std::string(16 << 10, 'i'), std::string(16 << 10, 't'));
  trace.End(absl::InvalidArgumentError("x-request-id: too long"));
  EXPECT_EQ(Attribute<std::string>(Named("p.S/M"), "foretoken.request_id"), std::string(256, 'i'));
  EXPECT_EQ(Attribute<std::string>(Named("p.S/M"), "foretoken.tenant"), std::string(256, 't'));
}

TEST_F(CallTraceTest, TheServerIsAsTheClientNamedIt) {
  CallTrace(tracer_, {.method = "p.S/M", .authority = "llm.example:50051"}).End(absl::OkStatus());
  EXPECT_EQ(Attribute<std::string>(spans_.back(), "server.address"), "llm.example");
  EXPECT_EQ(Attribute<int64_t>(spans_.back(), "server.port"), 50051);
  EXPECT_FALSE(Has(spans_.back(), "foretoken.reason"));
}

TEST_F(CallTraceTest, TheOperationIsWhatTheClientAsked) {
  const auto call_of = [this](const GenerationRequest& request) {
    CallTrace trace = Begin();
    trace.Submit(request, "llama");
    trace.End(absl::OkStatus());
    return spans_.back();
  };
  const tracing::Span text = call_of({});
  EXPECT_EQ(Attribute<std::string>(text, "gen_ai.operation.name"), "text_completion");
  EXPECT_EQ(Attribute<std::string>(text, "gen_ai.output.type"), "text");
  EXPECT_TRUE(Attribute<bool>(text, "gen_ai.request.stream"));
  const tracing::Span chat = call_of({.is_chat = true, .is_json = true, .is_streamed = false});
  EXPECT_EQ(Attribute<std::string>(chat, "gen_ai.output.type"), "json");
  EXPECT_EQ(Attribute<std::string>(chat, "gen_ai.operation.name"), "chat");
  EXPECT_FALSE(Attribute<bool>(chat, "gen_ai.request.stream"));
}

TEST_F(CallTraceTest, AVanishedClientLeavesNoOpenSpan) {
  CallTrace trace = Begin();
  trace.Submit({.num_samples = 2}, "llama");
  trace.Observe({.time = At(1), .began = At(0)});
  trace.Observe(Tokens(5, 0));
  trace.End(absl::CancelledError("the client has gone"));
  EXPECT_THAT(std::ranges::count(spans_, "decode", &tracing::Span::name), 1);
  EXPECT_THAT(std::ranges::count(spans_, "p.S/M", &tracing::Span::name), 1);
}

TEST_F(CallTraceTest, ACallThatEndsEarlySaysWhatIsKnown) {
  CallTrace trace = Begin();
  trace.Submit({.prompt = {1, 2, 3}, .num_samples = 2}, "llama");
  trace.Observe({.time = At(1), .began = At(0)});
  SampleOutput whole = Tokens(5, 0);
  whole.completion = SampleCompletion{.num_cached_tokens = 1, .speculation = {.num_proposed_nodes = 7}};
  trace.Observe(whole);
  for (const int num_accepted : {0, 3}) {
    SampleOutput output = Tokens(6 + num_accepted, num_accepted);
    output.sample_index = 1;
    if (num_accepted == 0) output.began = At(5);
    trace.Observe(output);
  }
  trace.End(absl::CancelledError("the client has gone"));
  const tracing::Span& call = Named("p.S/M");
  EXPECT_EQ(Attribute<int64_t>(call, "gen_ai.usage.input_tokens"), 3);
  EXPECT_EQ(Attribute<int64_t>(call, "gen_ai.usage.output_tokens"), 6);
  EXPECT_EQ(Attribute<int64_t>(call, "foretoken.speculation.steps"), 3);
  EXPECT_EQ(Attribute<int64_t>(call, "foretoken.speculation.accepted_tokens"), 3);
  EXPECT_THAT(Attribute<std::vector<std::string>>(call, "gen_ai.response.finish_reasons"), ElementsAre("stop"));
  for (const char* key : {"gen_ai.usage.cache_read.input_tokens", "foretoken.speculation.proposed_nodes",
                          "foretoken.speculation.verified_nodes"}) {
    EXPECT_FALSE(Has(call, key)) << key << ": one sample has not said it";
  }
}

TEST_F(CallTraceTest, ARequestThatIsAbortedInTheQueueHasItsFinishReason) {
  CallTrace trace = Begin();
  trace.Submit({.prompt = {1, 2, 3}}, "llama");
  trace.Observe({.completion = SampleCompletion{.finish_reason = FinishReason::kAbort}});
  trace.End(absl::OkStatus());
  EXPECT_THAT(Attribute<std::vector<std::string>>(Named("p.S/M"), "gen_ai.response.finish_reasons"),
              ElementsAre("abort"));
  EXPECT_EQ(std::ranges::count(spans_, "prompt", &tracing::Span::name), 0);
}

TEST_F(CallTraceTest, ParametersAreTheNumbersThatTheClientWrote) {
  CallTrace trace = Begin();
  trace.Submit({.sampling = {.temperature = 0.8f, .top_p = 0.95f}}, "llama");
  trace.End(absl::OkStatus());
  EXPECT_EQ(Attribute<double>(Named("p.S/M"), "gen_ai.request.temperature"), 0.8);
  EXPECT_EQ(Attribute<double>(Named("p.S/M"), "gen_ai.request.top_p"), 0.95);
  EXPECT_FALSE(Has(Named("p.S/M"), "gen_ai.request.top_k")) << "0 stands for none";
}

TEST_F(CallTraceTest, TheSeedIsTheClientsOnlyIfTheClientChoseIt) {
  const auto call_with = [this](uint64_t seed, bool has_clients_seed) {
    CallTrace trace = Begin();
    trace.Submit({.sampling = {.seed = seed}, .has_clients_seed = has_clients_seed}, "llama");
    trace.End(absl::OkStatus());
    return spans_.back();
  };
  EXPECT_EQ(Attribute<int64_t>(call_with(7, true), "gen_ai.request.seed"), 7);
  EXPECT_FALSE(Has(call_with(7, false), "gen_ai.request.seed"));
  const tracing::Span large = call_with(~uint64_t{0}, true);
  EXPECT_FALSE(Has(large, "gen_ai.request.seed")) << "the convention's type is too small for it";
  EXPECT_EQ(Attribute<std::string>(large, "foretoken.seed"), "18446744073709551615");
  EXPECT_EQ(Attribute<std::string>(call_with(7, false), "foretoken.seed"), "7");
}

TEST_F(CallTraceTest, GoesOnWithTheCallersTrace) {
  const auto caller = tracing::ParseTraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  CallTrace trace = Begin(caller);
  EXPECT_EQ(trace.context().trace_id, caller->trace_id);
  EXPECT_NE(trace.context().span_id, caller->span_id);
  trace.End(absl::OkStatus());
  EXPECT_EQ(Named("p.S/M").parent, caller->span_id);
}

TEST_F(CallTraceTest, AnUnsampledTraceHasAContextAndNoSpans) {
  CallTrace trace = Begin(tracing::ParseTraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"));
  EXPECT_FALSE(trace.is_recorded());
  EXPECT_TRUE(trace.context().is_set());
  trace.Submit({}, "llama");
  trace.Observe(Tokens(1, 0));
  trace.End(absl::OkStatus());
  EXPECT_THAT(spans_, IsEmpty());
}

TEST_F(CallTraceTest, AcceptedLengthsAreBounded) {
  CallTrace trace = Begin();
  trace.Submit({}, "llama");
  trace.Observe({.time = At(1), .began = At(0)});
  for (int i = 0; i < 1000; ++i) trace.Observe(Tokens(2 + i, 1));
  trace.End(absl::OkStatus());
  EXPECT_EQ(Attribute<std::vector<int64_t>>(Named("p.S/M"), "foretoken.speculation.accepted_lengths").size(),
            CallTrace::kMaxAcceptedLengths);
}

}  // namespace
}  // namespace foretoken::verifier
