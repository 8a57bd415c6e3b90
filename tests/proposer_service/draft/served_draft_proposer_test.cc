// SPDX-License-Identifier: Apache-2.0
// The draft proposer with models from files, and with its thread over gRPC. If these tests fail, a proposer serves a
// file that it should refuse, or a verifier gets no trees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/mapped_file.h"
#include "common/rpc/server.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/proposal_service.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::proposer {
namespace {

using testing::SourcePath;

TEST(LoadedDraftProposer, ReadsAGgufFileLikeADirectory) {
  telemetry::Metrics of_file, of_directory;
  const testing::TempDir dir;
  const std::string directory = SourcePath("deploy/demo/draft");
  const std::string path = dir.Write("draft.gguf", testing::GgufTwin(directory).Bytes());
  const auto from_file = DraftProposer::Load({.model_directory = path}, of_file);
  const auto from_directory = DraftProposer::Load({.model_directory = directory}, of_directory);
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  EXPECT_EQ((*from_file)->Describe().vocabulary_fingerprint, (*from_directory)->Describe().vocabulary_fingerprint);
  const auto tree_of = [](DraftProposer& proposer) {
    const auto session = proposer.Open({});
    session->Append(std::vector<int32_t>{10, 20, 30, 40});
    session->Want({.node_budget = 16});
    while (proposer.Step()) continue;
    const ProposalRequest request = {session.get(), 16};
    return proposer.Propose({&request, 1}).at(0);
  };
  const speculation::TokenTree tree = tree_of(**from_file);
  EXPECT_EQ(tree.num_nodes(), 16);
  EXPECT_EQ(tree.nodes, tree_of(**from_directory).nodes);
}

// Experts are read while the thread grows trees, so the page shows what that costs.
TEST(LoadedDraftProposer, CountsTheExpertsThatItReads) {
  const testing::TempDir directory;
  directory.CopyFrom(testing::RandomCheckpoint("qwen3_moe").directory());
  std::filesystem::copy(SourcePath("deploy/demo/target/tokenizer.json"), directory.path());
  telemetry::Metrics registry;
  const auto draft =
      DraftProposer::Load({.model_directory = directory.path(), .num_threads = 1, .expert_memory_mb = 1}, registry);
  ASSERT_TRUE(draft.ok()) << draft.status();
  const auto session = (*draft)->Open({});
  session->Append(std::vector<int32_t>(60, 5));
  session->Want({.node_budget = 16});
  while ((*draft)->Step()) continue;
  const DraftMetrics metrics(registry);
  EXPECT_GT(metrics.expert_loads.Value(), 5);
  EXPECT_GT(metrics.expert_bytes.Value(), 0);
  EXPECT_LE(metrics.expert_bytes.Value(), 1 << 20);
}

TEST(DraftMetrics, AreOnThePageOfMetrics) {
  telemetry::Metrics registry;
  const DraftMetrics metrics(registry);
  const std::string page = base::ReadFile(SourcePath("docs/metrics.md")).value();
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    EXPECT_THAT(page, ::testing::HasSubstr("`" + family.name + "`"));
  }
}

TEST(LoadedDraftProposer, NamesTheWrongOption) {
  telemetry::Metrics registry;
  EXPECT_THAT(DraftProposer::Load({}, registry).status().message(), ::testing::HasSubstr("model: "));
  EXPECT_THAT(DraftProposer::Load({.model_directory = "/nowhere"}, registry).status().message(),
              ::testing::HasSubstr("/nowhere"));
  EXPECT_THAT(DraftProposer::Load({.model_directory = SourcePath("deploy/demo/draft"), .num_threads = -1}, registry)
                  .status()
                  .message(),
              ::testing::HasSubstr("threads: "));
}

// A draft proposer with its thread, over gRPC.
class ServedDraftProposerTest : public ::testing::Test {
 protected:
  grpc::Status Describe(const v1::DescribeProposerRequest& request, v1::DescribeProposerResponse* description) {
    grpc::ClientContext context;
    return stub_->DescribeProposer(&context, request, description);
  }

  telemetry::Metrics metrics_;
  const std::unique_ptr<ProposalService> service_ =
      ProposalService::Create(
          {.method = "draft", .draft = {.model_directory = SourcePath("deploy/demo/draft"), .num_threads = 1}},
          metrics_)
          .value();
  const std::unique_ptr<rpc::Server> server_ = rpc::Server::Start({}, {service_.get()}).value();
  const std::unique_ptr<v1::ProposalService::Stub> stub_ = v1::ProposalService::NewStub(server_->InProcessChannel());
};

TEST_F(ServedDraftProposerTest, DescribesItsModelAndItsVocabulary) {
  v1::DescribeProposerResponse description;
  ASSERT_TRUE(Describe({}, &description).ok());
  EXPECT_EQ(description.method(), "draft");
  EXPECT_EQ(description.max_context_tokens(), 1024);
  EXPECT_EQ(description.vocabulary_fingerprint().size(), 64);
}

// The verifier may send digests of its tokens. Then the error names the first token that differs.
TEST_F(ServedDraftProposerTest, RefusesAnotherVocabulary) {
  v1::DescribeProposerResponse description, unused;
  ASSERT_TRUE(Describe({}, &description).ok());
  v1::DescribeProposerRequest other_words;
  other_words.set_vocabulary_fingerprint("bb");
  const grpc::Status unexplained = Describe(other_words, &unused);
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::Load(SourcePath("deploy/demo/draft")).value();
  for (const uint64_t digest : tokenizer::TokenDigests(tokenizer.vocabulary())) other_words.add_token_digests(digest);
  other_words.set_token_digests(77, 1);
  other_words.set_token_digests(78, 2);
  const grpc::Status explained = Describe(other_words, &unused);
  for (const grpc::Status& status : {unexplained, explained}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(description.vocabulary_fingerprint()));
  }
  EXPECT_THAT(unexplained.error_message(),
              ::testing::Not(::testing::EndsWith("token id 77 is the first that differs")));
  EXPECT_THAT(explained.error_message(), ::testing::EndsWith("token id 77 is the first that differs"));
}

TEST_F(ServedDraftProposerTest, PushesBetterTreesUntilTheBudgetWithoutFurtherRequests) {
  grpc::ClientContext context;
  const auto stream = stub_->Propose(&context);
  v1::ProposeRequest request;
  v1::OpenSession* open = request.add_opens();
  open->set_session_id(4);
  for (const uint32_t token_id : {17, 300, 25, 40, 300, 25}) open->add_token_ids(token_id);
  open->mutable_filters()->set_temperature(0);
  open->set_node_budget(24);
  stream->Write(request);
  v1::ProposeResponse response;
  int num_nodes = 0;
  while (num_nodes < 24 && stream->Read(&response)) {
    ASSERT_EQ(response.trees_size(), 1);
    EXPECT_EQ(response.trees(0).session_id(), 4);
    EXPECT_EQ(response.trees(0).position(), 6);
    EXPECT_GE(response.trees(0).token_ids_size(), num_nodes);
    num_nodes = response.trees(0).token_ids_size();
  }
  EXPECT_EQ(num_nodes, 24);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace foretoken::proposer
