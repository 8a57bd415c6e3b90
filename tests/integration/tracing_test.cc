// SPDX-License-Identifier: Apache-2.0
// One request's trace through three processes: the client, the verifier and a proposer. If this test fails, an operator
// cannot follow a request, or its step spans do not explain its time.
#include <algorithm>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/testing/fakes/trace_collector.h"
#include "tests/testing/temp_dir.h"
#include "vllm/engine.grpc.pb.h"

namespace foretoken {
namespace {

using testing::ChildProcess;
using testing::CollectedSpan;
using testing::TempDir;
using testing::TraceCollector;

constexpr char kGenerate[] = "foretoken.v1.GenerationService/Generate";
constexpr char kSession[] = "session";

std::vector<std::string> Environment(const TraceCollector& collector) {
  return {absl::StrCat("OTEL_EXPORTER_OTLP_ENDPOINT=", collector.url()), "OTEL_BSP_SCHEDULE_DELAY=50"};
}

void WaitForProposer(client::GenerationClient& client) {
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (NumConnected(client) == 0 && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(10));
}

struct TracedRun {
  int exit_code = 0;
  std::string trace_id;  // or all of the log, if it has none
};

TracedRun RunTraced(const std::string& target, const TraceCollector& collector) {
  const TempDir directory;
  std::vector<std::string> command = {"/usr/bin/env"};
  for (const std::string& variable : Environment(collector)) command.push_back(variable);
  for (const std::string& part :
       {absl::StrCat(FORETOKEN_BINARY_DIR, "/foretoken"), std::string("generate"), absl::StrCat("--target=", target),
        std::string("--trace"), std::string("--connect_timeout=5s"), std::string("--max_tokens=200"),
        std::string("--ignore_eos"), std::string("--temperature=0.8"), std::string("--seed=7"),
        std::string("--speculation=always"), std::string("def sum(a, b):\n    return a + b\n\ndef sum(")}) {
    command.push_back(part);
  }
  ChildProcess generate(command, directory.path() + "/log");
  const int exit_code = generate.Wait();
  const std::string log = base::ReadFile(directory.path() + "/log").value_or("");
  const size_t begin = log.find("trace ");
  return {.exit_code = exit_code, .trace_id = begin == std::string::npos ? log : log.substr(begin + 6, 32)};
}

// Runs `foretoken generate --trace` and returns the trace id that it prints.
std::string GenerateTraced(const ServiceProcess& verifier, const TraceCollector& collector) {
  const TracedRun run = RunTraced(verifier.address(), collector);
  EXPECT_EQ(run.exit_code, 0);
  return run.trace_id;
}

// The spans of one trace, by id.
struct Trace {
  Trace(const std::vector<CollectedSpan>& all, const std::string& trace_id) {
    for (const CollectedSpan& span : all) {
      if (absl::BytesToHexString(span.span.trace_id()) == trace_id) spans.push_back(span);
    }
  }
  std::vector<CollectedSpan> Find(const std::string& service, const std::string& name) const {
    std::vector<CollectedSpan> found;
    std::ranges::copy_if(spans, std::back_inserter(found), [&](const CollectedSpan& span) {
      return span.service == service && span.span.name() == name;
    });
    return found;
  }
  std::vector<CollectedSpan> ChildrenOf(const CollectedSpan& parent, const std::string& name) const {
    std::vector<CollectedSpan> children = Find(parent.service, name);
    std::erase_if(children, [&](const auto& span) { return span.span.parent_span_id() != parent.span.span_id(); });
    return children;
  }

  std::vector<CollectedSpan> spans;
};

class Tracing : public ::testing::Test {
 protected:
  Tracing() { WaitForProposer(client_); }
  // Ends both services, which send the last spans.
  Trace Finish(const std::string& trace_id) {
    verifier_.Terminate();
    proposer_.Terminate();
    return {collector_.spans(), trace_id};
  }

  TraceCollector collector_;
  ServiceProcess proposer_{"foretoken_proposer", {"--method=ngram", "--trace_proposals"}, Environment(collector_)};
  ServiceProcess verifier_{"foretoken_verifier",
                           {"--proposer=ngram=static:" + proposer_.address(), "--trace_steps"},
                           Environment(collector_)};
  client::GenerationClient client_ = Connect(verifier_);
};

TEST_F(Tracing, OneTraceRunsThroughThreeProcesses) {
  const std::string trace_id = GenerateTraced(verifier_, collector_);
  const Trace trace = Finish(trace_id);
  ASSERT_EQ(trace.Find("foretoken-client", kGenerate).size(), 1u) << trace_id;
  const CollectedSpan client = trace.Find("foretoken-client", kGenerate)[0];
  EXPECT_EQ(client.span.kind(), 3);
  EXPECT_EQ(client.span.parent_span_id(), "");
  EXPECT_EQ(absl::StrCat(client.Text("server.address"), ":", client.Int("server.port")), verifier_.address());
  ASSERT_EQ(trace.Find("foretoken-verifier", kGenerate).size(), 1u);
  const CollectedSpan call = trace.Find("foretoken-verifier", kGenerate)[0];
  EXPECT_EQ(call.span.kind(), 2);
  EXPECT_EQ(call.span.parent_span_id(), client.span.span_id());
  EXPECT_EQ(call.Text("rpc.response.status_code"), "OK");
  EXPECT_EQ(absl::StrCat(call.Text("server.address"), ":", call.Int("server.port")), verifier_.address());
  EXPECT_EQ(call.Text("gen_ai.operation.name"), "text_completion");
  EXPECT_EQ(call.Text("gen_ai.output.type"), "text");
  EXPECT_EQ(call.Int("gen_ai.usage.output_tokens"), 200);
  EXPECT_GT(call.Int("foretoken.speculation.accepted_tokens"), 0);
  const std::vector<CollectedSpan> sessions = trace.Find("foretoken-proposer", kSession);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].span.parent_span_id(), call.span.span_id());
  ASSERT_EQ(sessions[0].span.links_size(), 1);
  EXPECT_NE(sessions[0].span.links(0).trace_id(), sessions[0].span.trace_id());  // the stream's own trace
  const std::vector<CollectedSpan> proposals = trace.ChildrenOf(sessions[0], "proposal");
  // A question that the next one overtakes has a span, too, and no tree.
  const auto has_tree = [](const CollectedSpan& proposal) {
    const std::string outcome = proposal.Text("foretoken.proposal.outcome");
    return outcome == "answered" || outcome == "pushed";
  };
  EXPECT_EQ(sessions[0].Int("foretoken.session.trees"), std::ranges::count_if(proposals, has_tree));
  for (const CollectedSpan& proposal : proposals) {
    EXPECT_EQ(proposal.span.kind(), 2);
    ASSERT_EQ(proposal.span.links_size(), 1);
    EXPECT_EQ(proposal.span.links(0).span_id(), call.span.span_id());
  }
}

// A caller that is not ours, by either contract.
TEST_F(Tracing, AForeignCallersTraceAndItsStateReachTheProposer) {
  const auto channel = grpc::CreateChannel(verifier_.address(), grpc::InsecureChannelCredentials());
  const std::string trace_ids[] = {"0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"};
  grpc::ClientContext contexts[2];
  for (int i = 0; i < 2; ++i) {
    contexts[i].AddMetadata("traceparent", absl::StrCat("00-", trace_ids[i], "-b7ad6b7169203331-01"));
    contexts[i].AddMetadata("tracestate", "vendor=1");
  }
  v1::GenerateRequest ours;
  ours.set_text("def f():");
  ours.mutable_stopping()->set_max_tokens(8);
  v1::GenerateResponse our_answer;
  const auto our_reader = v1::GenerationService::NewStub(channel)->Generate(&contexts[0], ours);
  while (our_reader->Read(&our_answer)) continue;
  EXPECT_TRUE(our_reader->Finish().ok());
  vllm::grpc::engine::GenerateRequest theirs;
  theirs.set_text("def f():");
  theirs.mutable_sampling_params()->set_max_tokens(8);
  vllm::grpc::engine::GenerateResponse their_answer;
  const auto their_reader = vllm::grpc::engine::VllmEngine::NewStub(channel)->Generate(&contexts[1], theirs);
  while (their_reader->Read(&their_answer)) continue;
  EXPECT_TRUE(their_reader->Finish().ok());
  verifier_.Terminate();
  proposer_.Terminate();
  const std::string methods[] = {kGenerate, "vllm.grpc.engine.VllmEngine/Generate"};
  for (int i = 0; i < 2; ++i) {
    const Trace trace(collector_.spans(), trace_ids[i]);
    const std::vector<CollectedSpan> calls = trace.Find("foretoken-verifier", methods[i]);
    ASSERT_EQ(calls.size(), 1u) << methods[i];
    EXPECT_EQ(calls[0].span.kind(), 2);
    EXPECT_EQ(absl::BytesToHexString(calls[0].span.parent_span_id()), "b7ad6b7169203331");
    EXPECT_EQ(calls[0].span.trace_state(), "vendor=1");
    EXPECT_EQ(calls[0].Text("rpc.method"), methods[i]);
    EXPECT_EQ(trace.ChildrenOf(calls[0], "decode").size(), 1u) << methods[i];
    const std::vector<CollectedSpan> sessions = trace.Find("foretoken-proposer", kSession);
    ASSERT_EQ(sessions.size(), 1u) << methods[i];
    EXPECT_EQ(sessions[0].span.parent_span_id(), calls[0].span.span_id());
    EXPECT_EQ(sessions[0].span.trace_state(), "vendor=1");
  }
}

TEST_F(Tracing, TheStepsOfTheDecodeAddUpToItAndShowWhoGuessed) {
  const std::string trace_id = GenerateTraced(verifier_, collector_);
  const Trace trace = Finish(trace_id);
  const std::vector<CollectedSpan> calls = trace.Find("foretoken-verifier", kGenerate);
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_EQ(trace.ChildrenOf(calls[0], "decode").size(), 1u);
  const CollectedSpan decode = trace.ChildrenOf(calls[0], "decode")[0];
  int64_t nanos = 0, tokens = 0, num_proposals = 0;
  for (const CollectedSpan& step : trace.ChildrenOf(decode, "step")) {
    nanos += step.nanos();
    tokens += step.Int("foretoken.step.tokens");
    EXPECT_GE(step.Int("foretoken.step.node_budget"), step.Int("foretoken.step.verified_nodes"));
    EXPECT_GE(step.Int("foretoken.step.batch.row_budget"), step.Int("foretoken.step.batch.rows"));
    EXPECT_NE(step.Find("foretoken.step.asked_proposers"), nullptr);
    num_proposals += static_cast<int64_t>(trace.ChildrenOf(step, "proposal").size());
  }
  EXPECT_NEAR(static_cast<double>(nanos), static_cast<double>(decode.nanos()), 0.02 * decode.nanos());
  EXPECT_EQ(tokens, 199);  // the first token ends the prompt
  EXPECT_GT(num_proposals, 0);
  const otlp::AnyValue* const lengths = calls[0].Find("foretoken.speculation.accepted_lengths");
  ASSERT_NE(lengths, nullptr);
  EXPECT_EQ(lengths->array_value().values_size(), static_cast<int>(trace.ChildrenOf(decode, "step").size()));
}

TEST_F(Tracing, ARefusedCallSaysWhyAndForWhom) {
  v1::GenerateRequest request;
  request.set_text("def f():");
  request.set_request_id("mine");
  request.set_tenant("team");
  request.mutable_sampling()->set_temperature(-1);
  ASSERT_FALSE(client_.Generate(request).ok());
  const std::string model = client_.GetModelInfo()->model();
  verifier_.Terminate();
  const std::vector<CollectedSpan> spans = collector_.spans();
  const auto call = std::ranges::find_if(spans, [](const auto& span) { return span.span.name() == kGenerate; });
  ASSERT_NE(call, spans.end());
  EXPECT_EQ(call->Text("error.type"), "INVALID_ARGUMENT");
  EXPECT_EQ(call->Text("foretoken.reason"), "INVALID_FIELD");
  EXPECT_EQ(call->Text("foretoken.request_id"), "mine");
  EXPECT_EQ(call->Text("foretoken.tenant"), "team");
  EXPECT_EQ(call->Text("gen_ai.provider.name"), "foretoken");
  EXPECT_EQ(call->Text("gen_ai.request.model"), model);
}

TEST_F(Tracing, TheStreamOfAProposerSaysWhoEndedIt) {
  verifier_.Terminate();
  proposer_.Terminate();
  const std::vector<CollectedSpan> spans = collector_.spans();
  const auto stream = std::ranges::find(spans, "foretoken.v1.ProposalService/Propose",
                                        [](const CollectedSpan& span) { return span.span.name(); });
  ASSERT_NE(stream, spans.end());
  EXPECT_EQ(stream->Text("rpc.response.status_code"), "CANCELLED");
  EXPECT_EQ(absl::StrCat(stream->Text("server.address"), ":", stream->Int("server.port")), proposer_.address());
  EXPECT_EQ(stream->Text("network.peer.address"), "127.0.0.1");
}

TEST_F(Tracing, AChatIsNamedSo) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("Hi");
  request.mutable_stopping()->set_max_tokens(4);
  ASSERT_TRUE(client_.Generate(request).ok());
  verifier_.Terminate();
  const std::vector<CollectedSpan> spans = collector_.spans();
  const auto call = std::ranges::find_if(spans, [](const auto& span) { return span.span.name() == kGenerate; });
  ASSERT_NE(call, spans.end());
  EXPECT_EQ(call->Text("gen_ai.operation.name"), "chat");
}

TEST(TracingWithoutAVerifier, AConnectionThatFailsIsASpanOfTheClient) {
  const TraceCollector collector;
  const TracedRun run = RunTraced("127.0.0.1:1", collector);
  EXPECT_NE(run.exit_code, 0);
  const Trace trace(collector.spans(), run.trace_id);
  ASSERT_EQ(trace.spans.size(), 1u) << run.trace_id;
  EXPECT_EQ(trace.spans[0].service, "foretoken-client");
  EXPECT_EQ(trace.spans[0].Text("error.type"), "UNAVAILABLE");
  EXPECT_EQ(trace.spans[0].Int("server.port"), 1);
}

TEST(TracingWithoutPropagation, AServersTraceIsItsOwn) {
  const TraceCollector collector;
  std::vector<std::string> environment = Environment(collector);
  environment.push_back("OTEL_PROPAGATORS=none");
  ServiceProcess verifier("foretoken_verifier", {}, environment);
  const std::string trace_id = GenerateTraced(verifier, collector);
  verifier.Terminate();
  EXPECT_TRUE(Trace(collector.spans(), trace_id).Find("foretoken-verifier", kGenerate).empty());
  const std::vector<CollectedSpan> spans = collector.spans();
  EXPECT_TRUE(std::ranges::any_of(spans, [](const CollectedSpan& span) {
    return span.service == "foretoken-verifier" && span.span.name() == kGenerate && span.span.parent_span_id().empty();
  }));
}

TEST(TracingWithoutACollector, CostsNoRequestAndIsCounted) {
  const std::vector<std::string> nobody = {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1",
                                           "OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_SCHEDULE_DELAY=1"};
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram,embedded", "--trace_steps"}, nobody);
  client::GenerationClient client = Connect(verifier);
  v1::GenerateRequest request;
  request.set_text("def f():");
  request.mutable_stopping()->set_max_tokens(32);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(client.Generate(request).ok());
  EXPECT_GT(verifier.Metric("foretoken_trace_spans_dropped_total"), 0);
  EXPECT_EQ(verifier.Metric("foretoken_trace_spans_exported_total"), 0);
}

}  // namespace
}  // namespace foretoken
