// SPDX-License-Identifier: Apache-2.0
// A whole verifier with the demo model in one GGUF file. If this test fails, a user of such a file gets other text than
// a user of the model's directory.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/running_verifier.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::verifier {
namespace {

using testing::DemoConfig;
using testing::Greedy;
using testing::RunningVerifier;
using testing::Sample;

class GgufVerifier : public ::testing::Test {
 protected:
  static Config ConfigOf(const std::string& model) {
    Config config = DemoConfig();
    config.model_directory = model;
    config.model_name.clear();
    return config;
  }
  static v1::GetModelInfoResponse InfoOf(RunningVerifier& verifier) {
    grpc::ClientContext context;
    v1::GetModelInfoResponse info;
    EXPECT_TRUE(verifier.stub().GetModelInfo(&context, {}, &info).ok());
    return info;
  }
  static v1::GenerateRequest Chat() {
    v1::GenerateRequest request = Greedy("", 30);
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content("Write a loop.");
    return request;
  }

  const testing::TempDir dir_;
  const std::string model_ =
      dir_.Write("demo.gguf", testing::GgufTwin(DemoConfig().model_directory, {.encode = testing::InBf16}).Bytes());
};

TEST_F(GgufVerifier, AnswersLikeTheSafetensorsOfTheSameModel) {
  RunningVerifier gguf(ConfigOf(model_));
  RunningVerifier safetensors;
  for (const v1::GenerateRequest& request :
       {Greedy("def read_config(path):\n", 40), Greedy("import os\n", 60), Greedy("class Reader:\n", 50), Chat()}) {
    const testing::Output output = gguf.Generate(request), expected = safetensors.Generate(request);
    ASSERT_TRUE(output.status.ok()) << output.status.error_message();
    EXPECT_EQ(output.samples[0].token_ids, expected.samples[0].token_ids);
    EXPECT_EQ(output.samples[0].text, expected.samples[0].text);
    EXPECT_EQ(output.samples[0].completion.usage().prompt_tokens(),
              expected.samples[0].completion.usage().prompt_tokens());
  }
  const v1::GetModelInfoResponse info = InfoOf(gguf), expected = InfoOf(safetensors);
  EXPECT_EQ(info.model(), "demo");
  EXPECT_EQ(info.vocabulary_fingerprint(), expected.vocabulary_fingerprint());
  EXPECT_NE(info.numerics_fingerprint(), expected.numerics_fingerprint());
}

TEST_F(GgufVerifier, RefusesDamageBeforeItServes) {
  telemetry::Metrics metrics;
  const std::string bytes = testing::GgufTwin(DemoConfig().model_directory).Bytes();
  Config config = ConfigOf(dir_.Write("half.gguf", bytes.substr(0, bytes.size() / 2)));
  const absl::Status status = Verifier::Start(config, {.metrics = &metrics, .draw_bits = [] { return 1; }}).status();
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("half.gguf: tensor "), ::testing::HasSubstr("bytes from offset")));
}

}  // namespace
}  // namespace foretoken::verifier
