// SPDX-License-Identifier: Apache-2.0
// The service over real gRPC, on loopback and in process.
#include "proposer_service/proposal_service.h"

#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using Stream = grpc::ClientReaderWriter<v1::ProposeRequest, v1::ProposeResponse>;

class ProposalServiceTest : public ::testing::Test {
 protected:
  ProposalServiceTest()
      : service_(*ProposalService::Create({.limits = {.max_sessions = 4, .max_tree_nodes = 16}}, metrics_)),
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

TEST_F(ProposalServiceTest, AVerifierThatNeverReadsMeetsBackpressureAndHarmsNobody) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> deaf = stub_->Propose(&context);
  v1::ProposeRequest flood;
  for (uint64_t id = 0; id < 20000; ++id) flood.add_advances()->set_session_id(id);
  std::thread writer([&] {
    for (int32_t i = 0; i < 100 && deaf->Write(flood); ++i) {
    }
  });
  grpc::ClientContext other_context;
  const std::unique_ptr<Stream> other = stub_->Propose(&other_context);
  v1::ProposeResponse response;
  other->Write(OpenRequest(1));
  EXPECT_TRUE(other->Read(&response));
  context.TryCancel();
  writer.join();
  EXPECT_EQ(deaf->Finish().error_code(), grpc::StatusCode::CANCELLED);
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

TEST_F(ProposalServiceTest, NonsenseEventsAreAnsweredAndHarmNobody) {
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

TEST(EmbeddedProposalService, ASuffixProposerServesOneVocabulary) {
  telemetry::Metrics metrics;
  const std::unique_ptr<ProposalService> service = *ProposalService::Create({.method = "suffix"}, metrics);
  const std::unique_ptr<rpc::Server> server = *rpc::Server::Start({}, {service.get()});
  const auto stub = v1::ProposalService::NewStub(server->InProcessChannel());
  const auto describe = [&](const std::string& fingerprint, v1::DescribeProposerResponse& response) {
    grpc::ClientContext context;
    v1::DescribeProposerRequest request;
    request.set_vocabulary_fingerprint(fingerprint);
    return stub->DescribeProposer(&context, request, &response);
  };
  v1::DescribeProposerResponse response;
  ASSERT_TRUE(describe("aa", response).ok());
  EXPECT_EQ(response.method(), "suffix");
  EXPECT_TRUE(describe("aa", response).ok());
  EXPECT_TRUE(describe("", response).ok());
  const grpc::Status refused = describe("bb", response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused.error_message(), "vocabulary_fingerprint: expected aa, got bb");
}

TEST(EmbeddedProposalService, ABadConfigIsRefused) {
  telemetry::Metrics metrics;
  EXPECT_EQ(ProposalService::Create({.method = "magic"}, metrics).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foretoken::proposer
