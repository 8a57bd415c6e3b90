// SPDX-License-Identifier: Apache-2.0
// The spans of a session. If this test fails, a trace does not show what a proposer did for a request.
#include "proposer_service/session_trace.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/proposer_service/session_table_fixture.h"

namespace foretoken::proposer {
namespace {

constexpr char kRequest[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

class SessionTraceTest : public SessionTableTest {
 protected:
  Stream Traced(bool traces_proposals) {
    options_.traces_proposals = traces_proposals;
    return Stream({.proposer = proposer_, .room = room_, .metrics = metrics_, .trace = &options_});
  }
  std::vector<tracing::Span> Named(const std::string& name) const {
    std::vector<tracing::Span> named;
    std::ranges::copy_if(spans_, std::back_inserter(named), [&](const auto& span) { return span.name == name; });
    return named;
  }
  static int64_t Int(const tracing::Span& span, const std::string& key) {
    const auto found = std::ranges::find(span.attributes, key, &tracing::Attribute::key);
    return found == span.attributes.end() ? -1 : std::get<int64_t>(found->value);
  }
  static std::string Text(const tracing::Span& span, const std::string& key) {
    const auto found = std::ranges::find(span.attributes, key, &tracing::Attribute::key);
    return found == span.attributes.end() ? "" : std::get<std::string>(found->value);
  }

  std::vector<tracing::Span> spans_;
  uint64_t next_id_ = 1;
  TraceOptions options_ = {.tracer = tracing::Tracer(
                               tracing::Sampler(), [this] { return next_id_++; },
                               [this](tracing::Span span) { spans_.push_back(std::move(span)); })};
};

constexpr char kOutcome[] = "foretoken.proposal.outcome";
constexpr char kStream[] = "foretoken.v1.ProposalService/Propose", kSession[] = "session";

TEST_F(SessionTraceTest, ASessionOfATracedRequestIsASpanOfItsTrace) {
  Stream stream = Traced(false);
  v1::OpenSession& open = stream.Open(7, {1, 2, 3, 1}, 2);
  open.set_traceparent(kRequest);
  open.set_tracestate("a=1");
  stream.Exchange();
  stream.Advance(7, 4, {2}, 2);
  stream.Exchange();
  EXPECT_TRUE(spans_.empty());
  stream.Close(7);
  stream.Exchange();
  ASSERT_EQ(spans_.size(), 1u);
  const tracing::Span& session = spans_[0];
  EXPECT_EQ(session.name, kSession);
  EXPECT_EQ(session.kind, tracing::SpanKind::kServer);
  EXPECT_EQ(tracing::FormatTraceId(session.context.trace_id), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(session.context.state, "a=1");
  EXPECT_EQ(session.parent, tracing::ParseTraceContext(kRequest)->span_id);
  ASSERT_EQ(session.links.size(), 1u);
  EXPECT_NE(session.links[0].context.trace_id, session.context.trace_id);
  EXPECT_EQ(Int(session, "foretoken.session.tokens"), 5);
  EXPECT_EQ(Int(session, "foretoken.session.trees"), 2);
  EXPECT_GT(Int(session, "foretoken.session.nodes"), 0);
}

TEST_F(SessionTraceTest, WithDetailEveryTreeIsASpan) {
  Stream stream = Traced(true);
  stream.Open(7, {1, 2, 3, 1}, 2).set_traceparent(kRequest);
  stream.Exchange();
  stream.Advance(7, 4, {2}, 1);
  stream.Exchange();
  stream.Close(7);
  stream.Exchange();
  const std::vector<tracing::Span> proposals = Named("proposal");
  ASSERT_EQ(proposals.size(), 2u);
  EXPECT_EQ(proposals[0].parent, Named(kSession).at(0).context.span_id);
  EXPECT_EQ(proposals[0].kind, tracing::SpanKind::kServer);
  ASSERT_EQ(proposals[0].links.size(), 1u);
  EXPECT_EQ(tracing::FormatTraceparent(proposals[0].links[0].context), kRequest);
  EXPECT_TRUE(proposals[0].links[0].is_remote);
  EXPECT_EQ(Int(proposals[0], "foretoken.proposal.position"), 4);
  EXPECT_EQ(Int(proposals[1], "foretoken.proposal.position"), 5);
  EXPECT_EQ(Int(proposals[1], "foretoken.proposal.node_budget"), 1);
  EXPECT_GT(Int(proposals[0], "foretoken.proposal.nodes"), 0);
  EXPECT_EQ(Text(proposals[0], kOutcome), "answered");
}

// Has grown a tree ahead for contexts of four tokens.
class GrowingProposer : public Proposer {
 public:
  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction&) override { return std::make_unique<GrowingSession>(); }
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override {
    std::vector<speculation::TokenTree> trees;
    for (const ProposalRequest& request : requests) trees.push_back({.position = request.session->position()});
    return trees;
  }

 private:
  class GrowingSession : public Session {
   public:
    void Append(std::span<const int32_t> token_ids) override { position_ += token_ids.size(); }
    uint64_t position() const override { return position_; }
    bool has_grown_tree() const override { return position_ == 4; }

   private:
    uint64_t position_ = 0;
  };
  const ProposerDescription description_{.method = "draft"};
};

TEST_F(SessionTraceTest, AProposalSaysWhetherATreeHadBeenGrownAhead) {
  const auto were_ready = [&](Proposer& proposer) {
    spans_.clear();
    options_.traces_proposals = true;
    Stream stream({.proposer = proposer, .room = room_, .metrics = metrics_, .trace = &options_});
    stream.Open(7, {1, 2, 3, 1}, 2).set_traceparent(kRequest);
    stream.Exchange();
    stream.Advance(7, 4, {2}, 1);
    stream.Exchange();
    std::vector<bool> were_ready;
    for (const tracing::Span& proposal : Named("proposal")) {
      const auto found =
          std::ranges::find(proposal.attributes, "foretoken.proposal.was_ready", &tracing::Attribute::key);
      were_ready.push_back(std::get<bool>(found->value));
    }
    return were_ready;
  };
  GrowingProposer growing;
  EXPECT_EQ(were_ready(growing), std::vector<bool>({true, false}));
  EXPECT_EQ(were_ready(proposer_), std::vector<bool>({false, false})) << "an n-gram tree is made when it is asked for";
}

TEST_F(SessionTraceTest, AQuestionWithoutAnAnswerIsASpanToo) {
  Stream stream = Traced(true);
  stream.Open(7, {1, 2, 3, 1}, 2).set_traceparent(kRequest);
  stream.Apply();
  stream.Advance(7, 4, {2}, 1);
  stream.Apply();
  ASSERT_EQ(Named("proposal").size(), 1u);
  EXPECT_EQ(Text(Named("proposal")[0], kOutcome), "superseded");
  EXPECT_EQ(Int(Named("proposal")[0], "foretoken.proposal.position"), 4);
  stream.Close(7);
  stream.Apply();
  ASSERT_EQ(Named("proposal").size(), 2u);
  EXPECT_EQ(Text(Named("proposal")[1], kOutcome), "closed");
  EXPECT_EQ(Int(Named("proposal")[1], "foretoken.proposal.position"), 5);
  EXPECT_EQ(Int(Named(kSession).at(0), "foretoken.session.trees"), 0);
}

TEST_F(SessionTraceTest, AWishForNoTreeEndsAQuestionAndIsNone) {
  Stream stream = Traced(true);
  stream.Open(7, {1, 2, 3, 1}, 2).set_traceparent(kRequest);
  stream.Apply();
  stream.Advance(7, 4, {2}, 0);
  stream.Close(7);
  stream.Exchange();
  ASSERT_EQ(Named("proposal").size(), 1u);
  EXPECT_EQ(Text(Named("proposal")[0], kOutcome), "superseded");
}

TEST_F(SessionTraceTest, ATreeThatNobodyAskedForIsASpanWithoutALength) {
  Stream stream = Traced(true);
  stream.Open(7, {1, 2, 3, 1}, 2).set_traceparent(kRequest);
  stream.Exchange();
  stream.table.Announce(7);
  ASSERT_EQ(stream.Exchange().trees_size(), 1);
  ASSERT_EQ(Named("proposal").size(), 2u);
  const tracing::Span pushed = Named("proposal")[1];
  EXPECT_EQ(Text(pushed, kOutcome), "pushed");
  EXPECT_EQ(pushed.begin, pushed.end) << "there was no question to begin with";
  EXPECT_EQ(Int(pushed, "foretoken.proposal.position"), 4);
  EXPECT_GT(Int(pushed, "foretoken.proposal.nodes"), 0);
  EXPECT_EQ(Int(pushed, "foretoken.proposal.node_budget"), -1);
}

TEST_F(SessionTraceTest, TheEndOfTheStreamEndsTheSpan) {
  {
    Stream stream = Traced(true);
    stream.Open(7, {1, 2, 3, 1}, 2).set_traceparent(kRequest);
    stream.Exchange();
  }
  ASSERT_EQ(Named(kSession).size(), 1u);
  EXPECT_EQ(Int(Named(kSession)[0], "foretoken.session.tokens"), 4);
}

TEST_F(SessionTraceTest, AStreamIsATraceOfItsOwnWithLinksToItsRequests) {
  {
    Stream stream = Traced(false);
    constexpr uint64_t kNum = StreamTrace::kMaxLinks + 10;
    for (uint64_t i = 0; i < kNum; ++i) {
      // The first three sessions are samples of one request, and so are the last four.
      const std::string request =
          i < 3 ? kRequest : absl::StrFormat("00-%032x-00f067aa0ba902b7-01", std::min(i, kNum - 4));
      stream.Open(i, {1, 2, 3, 1}, 2).set_traceparent(request);
      stream.Exchange();
      stream.Close(i);
      stream.Exchange();
    }
  }
  ASSERT_EQ(Named(kStream).size(), 1u);
  const tracing::Span stream = Named(kStream)[0];
  EXPECT_FALSE(stream.parent.has_value());
  EXPECT_EQ(stream.links.size(), StreamTrace::kMaxLinks);
  EXPECT_EQ(stream.num_dropped_links, 10 - 2 - 3);
  EXPECT_EQ(tracing::FormatTraceparent(stream.links[0].context), kRequest);
  EXPECT_NE(stream.links[1].context.trace_id, stream.links[0].context.trace_id);
  EXPECT_EQ(Named(kSession).at(0).links.at(0).context.span_id, stream.context.span_id);
}

TEST_F(SessionTraceTest, AStreamSaysWhoOpenedItAndHowItEnded) {
  const auto ended = [this](const std::optional<absl::Status>& status) {
    spans_.clear();
    {
      Stream stream({.proposer = proposer_,
                     .room = room_,
                     .metrics = metrics_,
                     .trace = &options_,
                     .call = {.server = "proposer.example:50052", .peer = "ipv4:10.0.0.1:4711"}});
      if (status.has_value()) stream.table.SetEnd(*status);
    }
    return Named(kStream).at(0);
  };
  const tracing::Span full = ended(absl::ResourceExhaustedError("max_streams"));
  EXPECT_EQ(Text(full, "rpc.method"), kStream);
  EXPECT_EQ(Text(full, "server.address"), "proposer.example");
  EXPECT_EQ(Int(full, "server.port"), 50052);
  EXPECT_EQ(Text(full, "network.peer.address"), "10.0.0.1");
  EXPECT_EQ(Text(full, "rpc.response.status_code"), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Text(full, "error.type"), "RESOURCE_EXHAUSTED");
  EXPECT_FALSE(full.error.has_value());
  EXPECT_EQ(ended(absl::UnavailableError("draining")).error, "draining");
  EXPECT_EQ(Text(ended(absl::OkStatus()), "rpc.response.status_code"), "OK");
  EXPECT_EQ(Text(ended(std::nullopt), "rpc.response.status_code"), "CANCELLED");
}

TEST_F(SessionTraceTest, OtherSessionsHaveNoSpan) {
  {
    Stream stream = Traced(true);
    const std::string unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    for (const std::string& traceparent : {std::string(), std::string("nonsense"), unsampled, std::string(256, '0')}) {
      stream.Open(100 + traceparent.size(), {1, 2, 3, 1}, 2).set_traceparent(traceparent);
      EXPECT_EQ(stream.Exchange().trees_size(), 1);
      stream.Close(100 + traceparent.size());
      stream.Exchange();
    }
  }
  EXPECT_TRUE(Named(kSession).empty());
  EXPECT_TRUE(Named(kStream).at(0).links.empty());
}

}  // namespace
}  // namespace foretoken::proposer
