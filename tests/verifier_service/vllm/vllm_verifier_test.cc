// SPDX-License-Identifier: Apache-2.0
// A whole verifier with the demo model, called by vLLM's contract. If this test fails, a gateway's users get other
// tokens than our own clients, or a stranger gets in.
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/health.h"
#include "tests/testing/running_verifier.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/unary_call.h"
#include "verifier_service/vllm/vllm_engine_service.h"

namespace foretoken::verifier {
namespace {

using testing::DemoConfig;
using ::testing::ElementsAreArray;
using testing::Greedy;
using testing::RunningVerifier;

constexpr char kPromptText[] = "def get_alpha(self):\n    return self.alpha\n\ndef get_beta(self):\n";
constexpr char kService[] = "vllm.grpc.engine.VllmEngine";

std::shared_ptr<grpc::Channel> ChannelTo(RunningVerifier& verifier) {
  return grpc::CreateChannel(absl::StrCat("127.0.0.1:", verifier->port()), grpc::InsecureChannelCredentials());
}

struct Answer {
  grpc::Status status;
  std::vector<engine_api::GenerateResponse> messages;
};

Answer Generate(RunningVerifier& verifier, const engine_api::GenerateRequest& request, const std::string& token = "") {
  const auto stub = engine_api::VllmEngine::NewStub(ChannelTo(verifier));
  grpc::ClientContext context;
  if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  const auto reader = stub->Generate(&context, request);
  Answer answer;
  for (engine_api::GenerateResponse message; reader->Read(&message);) answer.messages.push_back(message);
  answer.status = reader->Finish();
  return answer;
}

engine_api::GenerateRequest VllmRequest(bool streams, uint32_t max_tokens = 24) {
  engine_api::GenerateRequest request;
  request.set_text(kPromptText);
  request.set_stream(streams);
  engine_api::SamplingParams& params = *request.mutable_sampling_params();
  params.set_temperature(0);
  params.set_max_tokens(max_tokens);
  params.set_ignore_eos(true);
  return request;
}

TEST(VllmVerifier, GivesTheTokensAndLogprobsOfOurOwnService) {
  RunningVerifier verifier;
  v1::GenerateRequest ours = Greedy(kPromptText, 24);
  ours.mutable_sampling()->set_temperature(0.8f);
  ours.mutable_sampling()->set_top_p(0.9f);
  ours.mutable_sampling()->set_seed(7);
  ours.mutable_output()->set_logprobs(2);
  const testing::Sample expected = verifier.Generate(ours).samples[0];
  engine_api::GenerateRequest theirs = VllmRequest(false);
  theirs.mutable_sampling_params()->set_temperature(0.8f);
  theirs.mutable_sampling_params()->set_top_p(0.9f);
  theirs.mutable_sampling_params()->set_seed(7);
  theirs.mutable_sampling_params()->set_logprobs(2);
  const Answer whole = Generate(verifier, theirs);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  ASSERT_EQ(whole.messages.size(), 1);
  const engine_api::GenerateComplete& complete = whole.messages[0].complete();
  EXPECT_THAT(complete.output_ids(), ElementsAreArray(expected.token_ids));
  EXPECT_EQ(complete.finish_reason(), "length");
  EXPECT_EQ(complete.prompt_tokens(), expected.completion.usage().prompt_tokens());
  ASSERT_EQ(complete.output_logprobs().top_logprobs_size(), 24);
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(complete.output_logprobs().token_logprobs(i), expected.logprobs[i].token().logprob());
    EXPECT_EQ(complete.output_logprobs().top_logprobs(i).token_ids(0), expected.logprobs[i].top(0).token_id());
  }
  theirs.set_stream(true);
  std::vector<uint32_t> streamed;
  for (const auto& message : Generate(verifier, theirs).messages) {
    streamed.insert(streamed.end(), message.chunk().token_ids().begin(), message.chunk().token_ids().end());
  }
  EXPECT_EQ(streamed, expected.token_ids);
}

TEST(VllmVerifier, SamplesComeInOrder) {
  RunningVerifier verifier;
  engine_api::GenerateRequest request = VllmRequest(false);
  request.mutable_sampling_params()->set_n(3);
  request.mutable_sampling_params()->set_temperature(1);
  request.mutable_sampling_params()->set_seed(5);
  request.mutable_sampling_params()->set_ignore_eos(false);
  const Answer answer = Generate(verifier, request);
  ASSERT_EQ(answer.messages.size(), 3);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(answer.messages[i].complete().index(), i);
}

// Gateways list end-of-text tokens among their stops.
TEST(VllmVerifier, AnEndOfTextTokenIsAMatchedStopOnlyIfTheRequestIgnoresIt) {
  constexpr int32_t kEndOfText = 4092;
  RunningVerifier verifier;
  engine_api::GenerateRequest request = VllmRequest(false);
  request.mutable_sampling_params()->add_stop_token_ids(kEndOfText);
  (*request.mutable_sampling_params()->mutable_logit_bias())[kEndOfText] = 1000;
  for (const bool ignores : {false, true}) {
    request.mutable_sampling_params()->set_ignore_eos(ignores);
    const Answer answer = Generate(verifier, request);
    ASSERT_EQ(answer.messages.size(), 1) << answer.status.error_message();
    const engine_api::GenerateComplete& complete = answer.messages[0].complete();
    EXPECT_EQ(complete.finish_reason(), "stop");
    EXPECT_EQ(complete.has_matched_token_id(), ignores);
  }
}

TEST(VllmVerifier, PromptLogprobsHaveOneEntryPerToken) {
  RunningVerifier verifier;
  engine_api::GenerateRequest request = VllmRequest(true, 2);
  request.mutable_sampling_params()->set_prompt_logprobs(1);
  const Answer answer = Generate(verifier, request);
  ASSERT_GE(answer.messages.size(), 2);
  const engine_api::GenerateStreamChunk& chunk = answer.messages[0].chunk();
  const engine_api::InputLogProbs& prompt = chunk.input_logprobs();
  ASSERT_EQ(prompt.token_ids_size(), chunk.prompt_tokens());
  ASSERT_EQ(prompt.token_logprobs_size(), chunk.prompt_tokens());
  ASSERT_EQ(prompt.top_logprobs_size(), chunk.prompt_tokens());
  EXPECT_FALSE(prompt.token_logprobs(0).has_value());
  for (int i = 1; i < prompt.token_ids_size(); ++i) EXPECT_TRUE(prompt.token_logprobs(i).has_value());
  for (size_t i = 1; i < answer.messages.size(); ++i) EXPECT_FALSE(answer.messages[i].chunk().has_input_logprobs());
}

TEST(VllmVerifier, IsNamedByTheHealthServiceAndLeftOutByTheFlag) {
  {
    RunningVerifier verifier;
    EXPECT_EQ(testing::CheckHealth(ChannelTo(verifier), kService), testing::Health::kServing);
    engine_api::HealthCheckResponse health;
    const auto result = testing::CallWithBytes(ChannelTo(verifier), absl::StrCat("/", kService, "/HealthCheck"), "");
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    ASSERT_TRUE(health.ParseFromString(result.response));
    EXPECT_TRUE(health.healthy());
  }
  Config config = DemoConfig();
  config.vllm_engine = false;
  RunningVerifier without(config);
  EXPECT_EQ(Generate(without, VllmRequest(true)).status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(testing::CheckHealth(ChannelTo(without), kService), testing::Health::kUnreachable);
  EXPECT_TRUE(without.Generate(Greedy("x", 2)).status.ok());
}

TEST(VllmVerifier, AsksForTheTokenOfClients) {
  const testing::TempDir directory;
  Config config = DemoConfig();
  config.token_file = directory.path() + "/tokens";
  std::ofstream(config.token_file) << "0123456789abcdef";
  RunningVerifier verifier(config);
  EXPECT_EQ(Generate(verifier, VllmRequest(true)).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Generate(verifier, VllmRequest(true), "0123456789abcdef").status.ok());
  for (const char* method : {"Abort", "HealthCheck", "GetModelInfo", "GetServerInfo", "GetLoads", "GetTokenizer"}) {
    const auto result = testing::CallWithBytes(ChannelTo(verifier), absl::StrCat("/", kService, "/", method), "");
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
  }
}

TEST(VllmVerifier, ACancelledCallFreesItsPlaceInTheBatch) {
  RunningVerifier verifier;
  const auto stub = engine_api::VllmEngine::NewStub(ChannelTo(verifier));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, VllmRequest(true, 900));
  engine_api::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  EXPECT_TRUE(verifier.WaitUntil([](const EngineStats& stats) { return stats.num_running == 0; }));
  EXPECT_LT(verifier->GetStats().num_generated_tokens, 900);
}

// The files of the tokenizer are read at the start, so the checkpoint may change or go afterwards.
TEST(VllmVerifier, SendsTheTokenizerOfItsCheckpoint) {
  RunningVerifier verifier;
  const auto stub = engine_api::VllmEngine::NewStub(ChannelTo(verifier));
  grpc::ClientContext context;
  const auto reader = stub->GetTokenizer(&context, {});
  std::string bytes, sha256;
  for (engine_api::GetTokenizerChunk chunk; reader->Read(&chunk);) {
    bytes += chunk.data();
    sha256 = chunk.sha256();
  }
  EXPECT_TRUE(reader->Finish().ok());
  const auto expected = MakeTokenizerArchive(DemoConfig().model_directory);
  EXPECT_EQ(bytes, expected->bytes);
  EXPECT_EQ(sha256, expected->sha256);
}

}  // namespace
}  // namespace foretoken::verifier
