// SPDX-License-Identifier: Apache-2.0
// The proposal service over real gRPC, on loopback and in process. If these tests fail, verifiers get no trees, or one
// verifier harms the others.
#include "proposer_service/proposal_service.h"

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proposer_service/ngram/ngram.h"
#include "tests/proposer_service/large_pieces.h"
#include "tests/testing/unary_call.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Stream = grpc::ClientReaderWriter<v1::ProposeRequest, v1::ProposeResponse>;

class ProposalServiceTest : public ::testing::Test {
 protected:
  ProposalServiceTest()
      : service_(*ProposalService::Create(
            {.limits = {.max_streams = 8, .max_sessions = 4, .max_stream_share = 1, .max_tree_nodes = 16}}, metrics_)),
        server_(
            *rpc::Server::Start({.listen_address = "127.0.0.1:0", .drain_grace = absl::Seconds(20)}, {service_.get()})),
        stub_(v1::ProposalService::NewStub(
            grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()))) {}

  static v1::ProposeRequest OpenRequest(uint64_t session_id, uint32_t node_budget = 4) {
    v1::ProposeRequest request;
    v1::OpenSession* open = request.add_opens();
    open->set_session_id(session_id);
    for (const uint32_t token_id : {1, 2, 3, 4, 1, 2}) open->add_token_ids(token_id);
    open->set_node_budget(node_budget);
    return request;
  }

  telemetry::Metrics metrics_;
  std::unique_ptr<ProposalService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::ProposalService::Stub> stub_;
};

TEST_F(ProposalServiceTest, DescribesItself) {
  grpc::ClientContext context;
  v1::DescribeProposerResponse response;
  ASSERT_TRUE(stub_->DescribeProposer(&context, {}, &response).ok());
  EXPECT_EQ(response.method(), "ngram");
  EXPECT_EQ(response.max_sessions(), 4);
  EXPECT_EQ(response.max_tree_nodes(), 16);
  EXPECT_EQ(response.vocabulary_fingerprint(), "");
  EXPECT_EQ(response.protocol_version(), 1);
  EXPECT_THAT(response.features(), ElementsAre("refusals", "allowed_tokens"));
}

TEST_F(ProposalServiceTest, ASessionIsOpenedAdvancedAndClosed) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Propose(&context);
  v1::ProposeResponse response;
  stream->Write(OpenRequest(5));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response.trees(0).token_ids(), ElementsAre(3, 4, 1, 2));
  v1::ProposeRequest request;
  v1::AdvanceSession* advance = request.add_advances();
  advance->set_session_id(5);
  advance->set_base_position(6);
  advance->add_token_ids(3);
  advance->set_node_budget(2);
  request.add_closes()->set_session_id(77);
  stream->Write(request);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.trees(0).position(), 7);
  EXPECT_THAT(response.trees(0).token_ids(), ElementsAre(4, 1));
  request.Clear();
  request.add_closes()->set_session_id(5);
  stream->Write(request);
  request.Clear();
  request.add_advances()->set_session_id(5);
  stream->Write(request);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response.unknown_session_ids(), ElementsAre(5));
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ProposalServiceTest, TwoStreamsMayUseTheSameIds) {
  for (int32_t round = 0; round < 2; ++round) {
    grpc::ClientContext contexts[2];
    for (grpc::ClientContext& context : contexts) {
      const std::unique_ptr<Stream> stream = stub_->Propose(&context);
      v1::ProposeResponse response;
      stream->Write(OpenRequest(1));
      ASSERT_TRUE(stream->Read(&response));
      EXPECT_EQ(response.trees_size(), 1);
      context.TryCancel();
      EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
  }
}

TEST_F(ProposalServiceTest, AStreamReachesItsOwnSessionsAlone) {
  grpc::ClientContext context, strangers_context;
  const std::unique_ptr<Stream> stream = stub_->Propose(&context), stranger = stub_->Propose(&strangers_context);
  v1::ProposeResponse response;
  stream->Write(OpenRequest(5));
  ASSERT_TRUE(stream->Read(&response));
  v1::ProposeRequest foreign;
  foreign.add_advances()->set_session_id(5);
  foreign.mutable_advances(0)->set_base_position(6);
  foreign.mutable_advances(0)->add_token_ids(9);
  foreign.mutable_advances(0)->set_node_budget(2);
  stranger->Write(foreign);
  ASSERT_TRUE(stranger->Read(&response));
  EXPECT_THAT(response.unknown_session_ids(), ElementsAre(5));
  EXPECT_EQ(response.trees_size(), 0);
  v1::ProposeRequest close;
  close.add_closes()->set_session_id(5);
  stranger->Write(close);
  stranger->Write(foreign);  // answered behind the close
  ASSERT_TRUE(stranger->Read(&response));
  v1::ProposeRequest own = foreign;
  own.mutable_advances(0)->set_token_ids(0, 3);
  stream->Write(own);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response.unknown_session_ids(), IsEmpty());
  EXPECT_EQ(response.trees(0).position(), 7);
  EXPECT_THAT(response.trees(0).token_ids(), ElementsAre(4, 1));
}

TEST_F(ProposalServiceTest, ABrokenStreamFreesItsSessions) {
  for (int32_t round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Propose(&context);
    for (uint64_t id = 0; id < 4; ++id) stream->Write(OpenRequest(id));
    v1::ProposeResponse response;
    ASSERT_TRUE(stream->Read(&response));
    context.TryCancel();
    stream->Finish();
    prometheus::Gauge& sessions =
        metrics_.AddGauge("foretoken_proposer_sessions", "Open sessions.", {{"proposer", "ngram"}});
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (sessions.Value() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    ASSERT_EQ(sessions.Value(), 0);
  }
}

TEST_F(ProposalServiceTest, AnswersAreBatched) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Propose(&context);
  v1::ProposeRequest request;
  for (uint64_t id = 0; id < 6; ++id) request.MergeFrom(OpenRequest(id));
  stream->Write(request);
  v1::ProposeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.trees_size(), 4);
  EXPECT_THAT(response.refused_session_ids(), ElementsAre(4, 5));
}

TEST_F(ProposalServiceTest, AVerifierThatNeverReadsIsStoppedAndHarmsNoOther) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> unread = stub_->Propose(&context);
  v1::ProposeRequest flood;
  for (uint64_t id = 0; id < 20000; ++id) flood.add_advances()->set_session_id(id);
  std::atomic<int> num_written = 0;
  std::thread writer([&] {
    while (unread->Write(flood)) ++num_written;
  });
  grpc::ClientContext other_context;
  const std::unique_ptr<Stream> other = stub_->Propose(&other_context);
  v1::ProposeResponse response;
  other->Write(OpenRequest(1));
  EXPECT_TRUE(other->Read(&response));
  int num_before = -1;
  for (int i = 0; i < 30 && num_written != num_before; ++i) {  // until the connection's buffers are full
    num_before = num_written;
    absl::SleepFor(absl::Seconds(1));
  }
  EXPECT_EQ(num_written, num_before);
  context.TryCancel();
  writer.join();
  EXPECT_EQ(unread->Finish().error_code(), grpc::StatusCode::CANCELLED);
  other->WritesDone();
  EXPECT_TRUE(other->Finish().ok());
}

TEST_F(ProposalServiceTest, DrainingEndsOpenStreamsAndRefusesNewOnes) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Propose(&context);
  v1::ProposeResponse response;
  stream->Write(OpenRequest(1));
  ASSERT_TRUE(stream->Read(&response));
  service_->StopAdmitting();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext late_context;
  EXPECT_EQ(stub_->Propose(&late_context)->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  const absl::Time begin = absl::Now();
  server_->Drain([] {});
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10)) << "no stream is left to wait for";
}

TEST_F(ProposalServiceTest, NonsenseEventsAreAnsweredAndHarmNoStream) {
  std::mt19937 random(9);
  for (int32_t round = 0; round < 50; ++round) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Propose(&context);
    v1::ProposeRequest request;
    for (uint32_t i = 0; i < random() % 20; ++i) {
      v1::AdvanceSession* advance = request.add_advances();
      advance->set_session_id(random() % 3);
      advance->set_base_position(random());
      advance->add_token_ids(random());
      advance->set_node_budget(random());
      v1::FeatureChunk* features = request.add_features();
      features->set_dtype("F64");
      features->set_values(std::string(random() % 1000, 'x'));
    }
    request.MergeFrom(OpenRequest(random() % 3, random()));
    stream->Write(request);
    stream->Write(request);
    v1::ProposeResponse response;
    ASSERT_TRUE(stream->Read(&response));
    for (const v1::TokenTree& tree : response.trees()) EXPECT_LE(tree.token_ids_size(), 16);
    stream->WritesDone();
    while (stream->Read(&response)) {
    }
    EXPECT_TRUE(stream->Finish().ok());
  }
}

TEST(EmbeddedProposalService, IsServedInProcess) {
  telemetry::Metrics metrics;
  const std::unique_ptr<ProposalService> service = *ProposalService::Create({}, metrics);
  const std::unique_ptr<rpc::Server> server = *rpc::Server::Start({}, {service.get()});
  const auto stub = v1::ProposalService::NewStub(server->InProcessChannel());
  grpc::ClientContext context;
  v1::DescribeProposerResponse response;
  ASSERT_TRUE(stub->DescribeProposer(&context, {}, &response).ok());
  EXPECT_EQ(response.method(), "ngram");
}

TEST_F(ProposalServiceTest, RequestsThatAreOutOfBoundsAreRefusedByField) {
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials());
  v1::DescribeProposerRequest described;
  described.set_vocabulary_fingerprint(std::string(129, 'a'));
  v1::ReadProjectionRequest read;
  read.set_digest(std::string(129, 'a'));
  for (const auto& [method, bytes, message] :
       {std::tuple("DescribeProposer", described.SerializeAsString(),
                   "vocabulary_fingerprint: expected at most 128 bytes, got 129"),
        {"ReadProjection", read.SerializeAsString(), "digest: expected at most 128 bytes, got 129"}}) {
    const grpc::Status status =
        testing::CallWithBytes(channel, absl::StrCat("/foretoken.v1.ProposalService/", method), bytes).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(status.error_message(), message);
  }
}

// A suffix proposer, which serves every vocabulary.
class SuffixServiceTest : public ::testing::Test {
 protected:
  grpc::Status Describe(const std::string& fingerprint) {
    grpc::ClientContext context;
    v1::DescribeProposerRequest request;
    request.set_vocabulary_fingerprint(fingerprint);
    v1::DescribeProposerResponse response;
    return stub_->DescribeProposer(&context, request, &response);
  }
  // Opens a stream of the vocabulary, returns the proposed tokens after 3, 4, 5, and finishes the output 6, 7, ...
  // there.
  std::vector<uint32_t> ProposeAndTeach(const std::string& fingerprint) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Propose(&context);
    v1::ProposeRequest request;
    request.set_vocabulary_fingerprint(fingerprint);
    v1::OpenSession* open = request.add_opens();
    open->set_session_id(1);
    for (const uint32_t token_id : {3, 4, 5}) open->add_token_ids(token_id);
    open->set_node_budget(1);
    stream->Write(request);
    v1::ProposeResponse response;
    EXPECT_TRUE(stream->Read(&response));
    v1::ProposeRequest output;
    v1::AdvanceSession* advance = output.add_advances();
    advance->set_session_id(1);
    advance->set_base_position(3);
    for (uint32_t token_id = 6; token_id < 26; ++token_id) advance->add_token_ids(token_id);
    output.add_closes()->set_session_id(1);
    stream->Write(output);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    return std::vector<uint32_t>(response.trees(0).token_ids().begin(), response.trees(0).token_ids().end());
  }
  // True once the proposer has learned this many outputs.
  bool HasLearned(double num_outputs) {
    const prometheus::Gauge& outputs = metrics_.AddGauge("foretoken_suffix_outputs", "Finished outputs remembered.");
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (outputs.Value() < num_outputs && absl::Now() < deadline) std::this_thread::yield();
    return outputs.Value() == num_outputs;
  }

  telemetry::Metrics metrics_;
  const std::unique_ptr<ProposalService> service_ = *ProposalService::Create({.method = "suffix"}, metrics_);
  const std::unique_ptr<rpc::Server> server_ = *rpc::Server::Start({}, {service_.get()});
  const std::unique_ptr<v1::ProposalService::Stub> stub_ = v1::ProposalService::NewStub(server_->InProcessChannel());
};

TEST_F(SuffixServiceTest, SeparatesVocabularies) {
  EXPECT_THAT(ProposeAndTeach("aa"), IsEmpty());
  ASSERT_TRUE(HasLearned(1));
  EXPECT_THAT(ProposeAndTeach("bb"), IsEmpty()) << "learned from another vocabulary";
  ASSERT_TRUE(HasLearned(2));
  EXPECT_THAT(ProposeAndTeach(""), IsEmpty());
  EXPECT_THAT(ProposeAndTeach("aa"), ElementsAre(6));
}

TEST_F(SuffixServiceTest, DescribesItselfForEveryVocabularyAndForgetsNothing) {
  for (const char* fingerprint : {"cc", "aa", "", "bb", "aa"}) EXPECT_TRUE(Describe(fingerprint).ok()) << fingerprint;
  EXPECT_THAT(ProposeAndTeach("aa"), IsEmpty());
  ASSERT_TRUE(HasLearned(1));
  for (const char* fingerprint : {"cc", "aa", "", "bb"}) EXPECT_TRUE(Describe(fingerprint).ok()) << fingerprint;
  EXPECT_THAT(ProposeAndTeach("bb"), IsEmpty()) << "a description mixes vocabularies";
  EXPECT_THAT(ProposeAndTeach("aa"), ElementsAre(6));
}

TEST_F(ProposalServiceTest, AStreamHasOneVocabulary) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Propose(&context);
  v1::ProposeRequest request = OpenRequest(1);
  request.set_vocabulary_fingerprint("aa");
  stream->Write(request);
  stream->Write(OpenRequest(2));
  request = OpenRequest(3);
  request.set_vocabulary_fingerprint("bb");
  stream->Write(request);
  v1::ProposeResponse response;
  while (stream->Read(&response)) {
    for (const v1::TokenTree& tree : response.trees()) EXPECT_LT(tree.session_id(), 3);
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "vocabulary_fingerprint: expected the stream's own, aa, got another one");
}

TEST_F(ProposalServiceTest, StreamsAreBounded) {
  grpc::ClientContext contexts[9];
  std::vector<std::unique_ptr<Stream>> streams;
  v1::ProposeResponse response;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(stub_->Propose(&contexts[i]));
    streams.back()->Write(OpenRequest(1));
    ASSERT_TRUE(streams.back()->Read(&response));
  }
  const grpc::Status status = stub_->Propose(&contexts[8])->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "max_streams: expected at most 8, got one more");
  streams[0]->WritesDone();
  EXPECT_TRUE(streams[0]->Finish().ok());
  // The client's call ends before the service has ended its stream.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  for (bool is_served = false; !is_served && absl::Now() < deadline;) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Propose(&context);
    stream->Write(OpenRequest(1));
    is_served = stream->Read(&response);
    if (is_served) return;
  }
  ADD_FAILURE() << "an ended stream still takes a place";
}

TEST_F(ProposalServiceTest, StreamsThatTheServiceEndsAreCounted) {
  const auto num_errors = [&](absl::string_view code) {
    return metrics_
        .AddCounter("foretoken_proposer_stream_errors_total", "Streams that the proposer ended with an error.",
                    {{"proposer", "ngram"}, {"code", std::string(code)}})
        .Value();
  };
  for (const bool is_bad : {false, true}) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Propose(&context);
    v1::ProposeRequest request = OpenRequest(1);
    if (is_bad) request.set_vocabulary_fingerprint(std::string(129, 'a'));
    stream->Write(request);
    stream->WritesDone();
    v1::ProposeResponse response;
    while (stream->Read(&response)) continue;
    EXPECT_EQ(stream->Finish().ok(), !is_bad);
  }
  const prometheus::Gauge& streams =
      metrics_.AddGauge("foretoken_proposer_streams", "Open streams of verifiers.", {{"proposer", "ngram"}});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (streams.Value() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(num_errors("INVALID_ARGUMENT"), 1);
  EXPECT_EQ(num_errors("RESOURCE_EXHAUSTED"), 0);
}

// Makes sampled trees as large as a draft model's: 256 nodes, each with its own distribution of 32 tokens.
class SampledTreesProposer : public NgramProposer {
 public:
  SampledTreesProposer() : NgramProposer({}) {}
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override {
    std::vector<speculation::TokenTree> trees;
    for (const ProposalRequest& request : requests) trees.push_back(Tree(*request.session, request.node_budget));
    return trees;
  }

 private:
  static speculation::TokenTree Tree(const Session& session, int32_t num_nodes) {
    speculation::TokenTree tree{.position = session.position()};
    for (int32_t i = 0; i < num_nodes; ++i) {
      tree.Append({.token_id = 100'000, .parent = i - 1, .chance = .9f});
      auto draft = std::make_shared<speculation::DraftDistribution>();
      for (int32_t k = 0; k < 32; ++k) {
        draft->token_ids.push_back(100'000 + k);
        draft->probs.push_back(1.f / 32);
      }
      tree.sampled.push_back({.parent = i - 1, .children = {i}, .draft = std::move(draft)});
    }
    return tree;
  }
};

// 200 sampled trees of 256 nodes are 12 MB.
TEST(ProposalServiceAnswers, AreSplitSoThatEachIsBelowTheBound) {
  constexpr int kNumSessions = 200;
  telemetry::Metrics metrics;
  const std::unique_ptr<ProposalService> service =
      *ProposalService::Create({}, std::make_unique<SampledTreesProposer>(), metrics);
  const std::unique_ptr<rpc::Server> server = *rpc::Server::Start({}, {service.get()});
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(rpc::kMaxProposeResponseBytes);
  const auto stub = v1::ProposalService::NewStub(server->InProcessChannel(arguments));
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub->Propose(&context);
  v1::ProposeRequest request;
  for (uint64_t id = 1; id <= kNumSessions; ++id) {
    v1::OpenSession* open = request.add_opens();
    open->set_session_id(id);
    open->add_token_ids(1);
    open->set_node_budget(256);
  }
  stream->Write(request);
  std::set<uint64_t> session_ids;
  size_t num_bytes = 0;
  int num_messages = 0;
  v1::ProposeResponse response;
  while (session_ids.size() < kNumSessions && stream->Read(&response)) {
    ++num_messages;
    num_bytes += response.ByteSizeLong();
    EXPECT_LE(response.ByteSizeLong(), rpc::kMaxProposeResponseBytes);
    for (const v1::TokenTree& tree : response.trees()) EXPECT_TRUE(session_ids.insert(tree.session_id()).second);
  }
  EXPECT_EQ(session_ids.size(), kNumSessions);
  EXPECT_GT(num_bytes, 2 * rpc::kMaxProposeResponseBytes) << "the test proves nothing: one message is enough";
  EXPECT_LT(num_messages, 10);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// A verifier may hold many streams open and send a large message on each.
TEST(ProposalServiceMessages, LeaveNoMemoryBehind) {
  if (!CountLargePieces()) GTEST_SKIP() << kNoLargePieces;
  telemetry::Metrics metrics;
  const std::unique_ptr<ProposalService> service =
      *ProposalService::Create({}, std::make_unique<SampledTreesProposer>(), metrics);
  const std::unique_ptr<rpc::Server> server = *rpc::Server::Start({}, {service.get()});
  const auto stub = v1::ProposalService::NewStub(server->InProcessChannel());
  grpc::ClientContext contexts[4];
  std::vector<std::unique_ptr<Stream>> streams;
  const auto exchange = [](Stream& stream, uint64_t first_id, uint64_t num_sessions, int num_chunks) {
    v1::ProposeRequest request;
    for (int i = 0; i < num_chunks; ++i) request.add_features()->set_values(std::string(64 << 10, 'x'));  // ignored
    for (uint64_t id = first_id; id < first_id + num_sessions; ++id) {
      v1::OpenSession* open = request.add_opens();
      open->set_session_id(id);
      open->add_token_ids(1);
      open->set_node_budget(256);
    }
    stream.Write(request);
    v1::ProposeResponse response;
    EXPECT_TRUE(stream.Read(&response));
    EXPECT_EQ(response.trees_size(), num_sessions);
  };
  for (grpc::ClientContext& context : contexts) {
    streams.push_back(stub->Propose(&context));
    exchange(*streams.back(), 1, 1, 0);
  }
  const size_t before = LargePieceBytes();
  for (const auto& stream : streams) exchange(*stream, 2, 30, 48);
  // gRPC tells the service a little later that a write is done.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (LargePieceBytes() > before + (1 << 20) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_LE(LargePieceBytes(), before + (1 << 20));
  for (const auto& stream : streams) {
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
}

TEST(EmbeddedProposalService, ABadConfigIsRefused) {
  telemetry::Metrics metrics;
  EXPECT_EQ(ProposalService::Create({.method = "magic"}, metrics).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foretoken::proposer
