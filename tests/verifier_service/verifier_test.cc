// SPDX-License-Identifier: Apache-2.0
// A whole verifier with the demo model, over loopback: its start and its answers. If this test fails, a server starts
// with a wrong configuration, or a real client gets wrong tokens, log-probabilities or stop conditions.
#include "verifier_service/verifier.h"

#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/running_verifier.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace foretoken::verifier {
namespace {

using testing::DemoConfig;
using ::testing::ElementsAre;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::Output;
using testing::RunningVerifier;
using testing::Sample;

TEST(Verifier, StreamsARealModelsText) {
  RunningVerifier verifier;
  const Output output = verifier.Generate(Greedy("def read_config(path):\n", 40));
  ASSERT_TRUE(output.status.ok()) << output.status.error_message();
  const Sample& sample = output.samples[0];
  EXPECT_EQ(sample.token_ids.size(), 40);
  EXPECT_FALSE(sample.text.empty());
  EXPECT_EQ(sample.completion.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(sample.completion.usage().completion_tokens(), 40);
  EXPECT_GT(sample.completion.usage().prompt_tokens(), 0);
  EXPECT_EQ(sample.completion.usage().steps(), 40);
  EXPECT_THAT(sample.completion.numerics_fingerprint(), HasSubstr("weights-"));
  const Sample again = verifier.Generate(Greedy("def read_config(path):\n", 40)).samples[0];
  EXPECT_EQ(again.token_ids, sample.token_ids);
  EXPECT_NE(again.completion.seed(), sample.completion.seed());
}

TEST(Verifier, StartsAndServesOnlyWithTheExpectedNumericsFingerprint) {
  v1::GenerateRequest request = Greedy("import os\n", 3);
  Config config = DemoConfig();
  {
    RunningVerifier verifier;
    const Output output = verifier.Generate(request);
    ASSERT_TRUE(output.status.ok()) << output.status.error_message();
    config.numerics_fingerprint = output.samples[0].completion.numerics_fingerprint();
  }
  RunningVerifier verifier(config);
  request.set_expected_numerics_fingerprint(config.numerics_fingerprint);
  EXPECT_TRUE(verifier.Generate(request).status.ok());
  request.set_expected_numerics_fingerprint("these bits");
  const grpc::Status refused = verifier.Generate(request).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("\"these bits\""));
  EXPECT_THAT(refused.error_message(), HasSubstr("\"" + config.numerics_fingerprint + "\""));
  request.clear_expected_numerics_fingerprint();
  EXPECT_TRUE(verifier.Generate(request).status.ok()) << "other requests are served";

  telemetry::Metrics metrics;
  config.numerics_fingerprint = "these bits";
  const absl::Status status = Verifier::Start(config, {.metrics = &metrics, .draw_bits = [] { return 1; }}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("--numerics_fingerprint: expected \"these bits\", got \"foretoken-"));
}

std::string ServedFingerprint(const Config& config) {
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  v1::GetModelInfoResponse info;
  EXPECT_TRUE(verifier.stub().GetModelInfo(&context, {}, &info).ok());
  return info.numerics_fingerprint();
}

v1::WeightInfo WeightsOf(const Config& config) {
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  v1::GetModelInfoResponse info;
  EXPECT_TRUE(verifier.stub().GetModelInfo(&context, {}, &info).ok());
  return info.weights();
}

TEST(Verifier, TellsHowItKeepsTheWeightsAndWhatMemoryAllows) {
  Config config = DemoConfig();
  const v1::WeightInfo plain = WeightsOf(config);
  EXPECT_THAT(plain.formats(), ElementsAre("BF16"));
  EXPECT_THAT(plain.numeric_mode(), HasSubstr("cpu/"));
  EXPECT_NEAR(plain.bits_per_weight(), 16, 0.5);
  EXPECT_GT(plain.bytes_per_step(), 14'000'000);
  EXPECT_GT(plain.read_bytes_per_second(), 1e8);
  EXPECT_EQ(plain.max_plain_tokens_per_second(),
            plain.read_bytes_per_second() / static_cast<double>(plain.bytes_per_step()));

  config.quantization = {.weights = "int4", .head = "int8", .group_size = 32};
  const v1::WeightInfo rounded = WeightsOf(config);
  EXPECT_THAT(rounded.formats(), ElementsAre("BF16"));
  EXPECT_THAT(rounded.numeric_mode(), HasSubstr("w4a16-g32"));
  EXPECT_GT(rounded.bits_per_weight(), 4.5);  // a scale of 16 bits for 32 weights
  EXPECT_LT(rounded.bits_per_weight(), 8.5);
  EXPECT_LT(3 * rounded.bytes_per_step(), plain.bytes_per_step());
}

// A draw excludes ids without a token, so servers with different tokenizers draw differently.
TEST(Verifier, ServersWithTokenizersOfDifferentSizesHaveDifferentFingerprints) {
  const testing::TempDir directory;
  Config config = DemoConfig();
  directory.CopyFrom(config.model_directory);
  const std::string before = ServedFingerprint(config);
  config.model_directory = directory.path();
  EXPECT_EQ(ServedFingerprint(config), before);
  nlohmann::json tokenizer = base::ReadJson(directory.path() + "/tokenizer.json").value();
  tokenizer["added_tokens"].erase(tokenizer["added_tokens"].size() - 1);
  directory.Write("tokenizer.json", tokenizer.dump());
  const std::string after = ServedFingerprint(config);
  EXPECT_NE(after, before);
  EXPECT_THAT(after, HasSubstr(" ids-4095/"));
}

TEST(Verifier, ServesWithoutATemplateThatCannotBeParsed) {
  const testing::TempDir directory;
  Config config = DemoConfig();
  directory.CopyFrom(config.model_directory);
  directory.Write("chat_template.jinja", "{% with a=1 %}{{ a }}{% endwith %}");
  config.model_directory = directory.path();
  RunningVerifier verifier(config);
  v1::GetModelInfoResponse info;
  grpc::ClientContext info_context;
  ASSERT_TRUE(verifier.stub().GetModelInfo(&info_context, {}, &info).ok());
  EXPECT_FALSE(info.has_chat_template());
  v1::GenerateRequest request = Greedy("a", 1);
  EXPECT_TRUE(verifier.Generate(request).status.ok());
  request.mutable_chat()->add_messages()->set_role("user");
  const grpc::Status refused = verifier.Generate(request).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("chat: expected text or tokens, because of this model's chat template: "));
  EXPECT_THAT(refused.error_message(), ::testing::Not(HasSubstr(directory.path())));
}

TEST(Verifier, RefusesAnotherFingerprintBeforeAndAfterItReadsTheWeights) {
  telemetry::Metrics metrics;
  Config config = DemoConfig();
  const std::string fingerprint = ServedFingerprint(config);
  for (const std::string& expected : {"x" + fingerprint, fingerprint + "0", fingerprint.substr(0, 40)}) {
    config.numerics_fingerprint = expected;
    const bool begins_alike = absl::StartsWith(expected, fingerprint);
    bool has_read = false;
    const absl::Status status = Verifier::Start(config, {.metrics = &metrics,
                                                         .draw_bits = [] { return 1; },
                                                         .progress = [&](size_t, size_t) { has_read = true; }})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(has_read, begins_alike) << expected;
  }
}

TEST(Verifier, SamplesOfOneRequestDifferAndAreThoseOfTheSeed) {
  RunningVerifier verifier;
  v1::GenerateRequest request = Greedy("import os\n", 30);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  request.mutable_sampling()->set_n(3);
  const Output three = verifier.Generate(request);
  ASSERT_TRUE(three.status.ok()) << three.status.error_message();
  EXPECT_NE(three.samples[0].token_ids, three.samples[1].token_ids);
  EXPECT_NE(three.samples[1].token_ids, three.samples[2].token_ids);
  for (const Sample& sample : three.samples) EXPECT_EQ(sample.completion.usage().completion_tokens(), 30);
  request.mutable_sampling()->set_n(1);
  EXPECT_EQ(verifier.Generate(request).samples[0].token_ids, three.samples[0].token_ids);
}

TEST(Verifier, StopsAtAStringAcrossTokens) {
  RunningVerifier verifier;
  const Output whole = verifier.Generate(Greedy("def read_config(path):\n", 40));
  const std::string& text = whole.samples[0].text;
  ASSERT_GT(text.size(), 40);
  const std::string stop = text.substr(text.size() / 2, 12);  // longer than any common token
  v1::GenerateRequest request = Greedy("def read_config(path):\n", 40);
  request.mutable_stopping()->add_stop_strings("never in a text");
  request.mutable_stopping()->add_stop_strings(stop);
  Sample sample = verifier.Generate(request).samples[0];
  EXPECT_EQ(sample.text, text.substr(0, text.find(stop)));
  EXPECT_EQ(sample.completion.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(sample.completion.matched_stop_string(), stop);
  EXPECT_LT(sample.token_ids.size(), 40);
  request.mutable_stopping()->set_include_stop_string(true);
  sample = verifier.Generate(request).samples[0];
  EXPECT_EQ(sample.text, text.substr(0, text.find(stop) + stop.size()));
}

TEST(Verifier, StopsAtAToken) {
  RunningVerifier verifier;
  const Sample whole = verifier.Generate(Greedy("import os\n", 20)).samples[0];
  v1::GenerateRequest request = Greedy("import os\n", 20);
  request.mutable_stopping()->add_stop_token_ids(whole.token_ids[9]);
  const Sample sample = verifier.Generate(request).samples[0];
  EXPECT_EQ(sample.completion.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(sample.completion.matched_stop_token_id(), whole.token_ids[9]);
  EXPECT_LE(sample.token_ids.size(), 10);
}

TEST(Verifier, ThePromptIsScoredAndSentOnceForAnyN) {
  RunningVerifier verifier;
  std::string text;  // fills several K/V blocks
  for (int i = 0; i < 60; ++i) text += "import module_" + std::to_string(i) + "\n";
  v1::GenerateRequest request = Greedy(text, 4);
  request.mutable_output()->set_prompt_logprobs(2);
  const Output of_one = verifier.Generate(request);
  request.mutable_sampling()->set_n(3);
  const uint64_t num_before = verifier->GetStats().num_prompt_tokens;
  const Output of_three = verifier.Generate(request);
  ASSERT_TRUE(of_three.status.ok()) << of_three.status.error_message();
  EXPECT_EQ(of_three.num_prompt_messages, 1);
  EXPECT_EQ(of_three.prompt.SerializeAsString(), of_one.prompt.SerializeAsString());
  EXPECT_LT(verifier->GetStats().num_prompt_tokens - num_before,
            2 * static_cast<uint64_t>(of_one.prompt.token_ids_size()))
      << "the other samples use the K/V of the first";
  for (const Sample& sample : of_three.samples) EXPECT_EQ(sample.token_ids, of_one.samples[0].token_ids);
}

TEST(Verifier, ParametersAtTheEndsOfTheirRangesKeepLogitsFinite) {
  RunningVerifier verifier;
  for (const float penalty : {0.01f, 100.f}) {
    for (const float temperature : {1e-5f, 100.f}) {
      v1::GenerateRequest request = Greedy("import os\n", 8);
      v1::SamplingOptions& sampling = *request.mutable_sampling();
      sampling.set_temperature(temperature);
      sampling.set_repetition_penalty(penalty);
      sampling.set_presence_penalty(-2);
      sampling.set_frequency_penalty(2);
      for (const uint32_t id : {10u, 11u}) (*sampling.mutable_logit_bias())[id] = id == 10 ? 10'000 : -10'000;
      const Output output = verifier.Generate(request);
      EXPECT_TRUE(output.status.ok()) << output.status.error_message();
    }
  }
}

TEST(Verifier, EchoesThePromptWithItsLogprobs) {
  RunningVerifier verifier;
  v1::GenerateRequest request = Greedy("import os\nimport sys\n", 4);
  request.mutable_output()->set_echo(true);
  request.mutable_output()->set_prompt_logprobs(2);
  request.mutable_output()->set_logprobs(3);
  const Output output = verifier.Generate(request);
  ASSERT_TRUE(output.status.ok()) << output.status.error_message();
  EXPECT_EQ(output.prompt.text(), request.text());
  ASSERT_GT(output.prompt.token_ids_size(), 1);
  ASSERT_EQ(output.prompt.logprobs_size(), output.prompt.token_ids_size() - 1);
  EXPECT_EQ(output.prompt.logprobs(0).token().token_id(), output.prompt.token_ids(1));
  EXPECT_EQ(output.prompt.logprobs(0).top_size(), 2);
  EXPECT_EQ(output.num_prompt_messages, 1);
  const Sample& sample = output.samples[0];
  ASSERT_EQ(sample.logprobs.size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sample.logprobs[i].token().token_id(), sample.token_ids[i]);
    ASSERT_EQ(sample.logprobs[i].top_size(), 3);
    EXPECT_EQ(sample.logprobs[i].top(0).token_id(), sample.token_ids[i]);  // greedy
    EXPECT_LE(sample.logprobs[i].token().logprob(), 0);
  }
}

TEST(Verifier, SaysThatTheCacheCutsContexts) {
  Config config = DemoConfig();
  config.kv_cache_mb = 1;
  const testing::CapturedLog log;
  RunningVerifier verifier(config, {});
  EXPECT_THAT(log.Lines(), ::testing::Contains(HasSubstr("contexts end at 256 tokens")));
}

struct BadStart {
  const char* name;
  void (*spoil)(Config&);
  const char* message;
};

class RefusedStart : public ::testing::TestWithParam<BadStart> {};

TEST_P(RefusedStart, NamesTheProblem) {
  Config config = DemoConfig();
  GetParam().spoil(config);
  telemetry::Metrics metrics;
  const auto started = Verifier::Start(config, {.metrics = &metrics, .draw_bits = [] { return uint64_t{1}; }});
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(std::string(started.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    EveryCause, RefusedStart,
    ::testing::Values(
        BadStart{"NoModel", [](Config& c) { c.model_directory = ""; }, "--model: "},
        BadStart{"NoSuchModel", [](Config& c) { c.model_directory = "/nowhere"; }, "/nowhere/config.json"},
        BadStart{"Address", [](Config& c) { c.listen_address = "localhost"; }, "--listen: expected HOST:PORT"},
        // Before the model is loaded.
        BadStart{"ForeignAddress",
                 [](Config& c) {
                   c.listen_address = "192.0.2.1:0";
                   c.security.is_insecure = true;
                   c.model_directory = "/nowhere";
                 },
                 "listen: cannot bind '192.0.2.1:0'"},
        BadStart{"ForeignMetricsAddress",
                 [](Config& c) {
                   c.metrics_address = "192.0.2.1:0";
                   c.model_directory = "/nowhere";
                 },
                 "192.0.2.1:0"},
        BadStart{
            "OnePortForCallsAndMetrics",
            [](Config& c) {
              c.listen_address = "127.0.0.1:50051";
              c.metrics_address = "0.0.0.0:50051";
              c.model_directory = "/nowhere";
            },
            "--metrics_listen: expected another port than that of --listen=127.0.0.1:50051, got \"0.0.0.0:50051\""},
        BadStart{"OnePortForHealthAndMetrics",
                 [](Config& c) {
                   c.security.health_address = "127.0.0.1:50061";
                   c.metrics_address = "127.0.0.1:50061";
                   c.model_directory = "/nowhere";
                 },
                 "--metrics_listen: expected another port than that of --health_listen=127.0.0.1:50061"},
        BadStart{"OneMethodTwice",
                 [](Config& c) {
                   c.proposers = {"ngram=static:127.0.0.1:1", "ngram,embedded"};
                   c.model_directory = "/nowhere";
                 },
                 "--proposer: proposer ngram: given twice"},
        BadStart{"ReservedMethod",
                 [](Config& c) {
                   c.proposers = {"grammar=static:127.0.0.1:1"};
                   c.model_directory = "/nowhere";
                 },
                 "--proposer: proposer grammar: expected another name"},
        BadStart{"NoCertificate",
                 [](Config& c) {
                   static const testing::TempDir dir;
                   dir.Write("ca.pem", testing::TestAuthority().certificate());
                   c.security.tls.ca = dir.path() + "/ca.pem";
                   c.model_directory = "/nowhere";
                 },
                 "a server needs a certificate"},
        BadStart{"LargePort", [](Config& c) { c.listen_address = "127.0.0.1:99999"; },
                 "--listen: expected HOST:PORT with a port of 0 to 65535"},
        BadStart{"LargeMetricsPort", [](Config& c) { c.metrics_address = "127.0.0.1:70000"; }, "--metrics_listen: "},
        BadStart{"MoreKvCacheThanMemory", [](Config& c) { c.kv_cache_mb = 100'000'000; }, "Lower --kv_cache_mb"},
        BadStart{"MoreStepRowsThanMemory", [](Config& c) { c.engine.max_step_rows = 2'000'000'000; },
                 "Lower --max_step_rows"},
        BadStart{"EndlessGrowth",
                 [](Config& c) { c.engine.prompts.max_inter_token_growth = std::numeric_limits<float>::infinity(); },
                 "max_inter_token_growth: expected a number of at least 1, got inf"},
        BadStart{"NegativeHeldGrammars", [](Config& c) { c.grammars.max_held_bytes = -(1 << 20); },
                 "--max_held_grammars_mb: expected 1 to 1048576, got -1"},
        BadStart{"MetricsAddress", [](Config& c) { c.metrics_address = ":x"; }, "--metrics_listen: "},
        BadStart{"Threads", [](Config& c) { c.num_threads = -1; }, "--threads: "},
        BadStart{"NoRanks", [](Config& c) { c.tensor_parallel = 0; }, "--tensor_parallel: expected 1 to 64, got 0"},
        BadStart{"RanksThatCannotShareTheHeads", [](Config& c) { c.tensor_parallel = 4; },
                 "--tensor_parallel: expected a divisor of the model's num_key_value_heads 2, got 4"},
        BadStart{"Device", [](Config& c) { c.device = "abacus"; }, "device: "},
        BadStart{"Isa", [](Config& c) { c.cpu_isa = "mmx"; }, "isa: "},
        BadStart{"SmallKvCache", [](Config& c) { c.kv_cache_mb = 0; }, "--kv_cache_mb: "},
        BadStart{"NoExpertMemory", [](Config& c) { c.expert_memory_mb = 0; },
                 "--expert_memory_mb: expected 1 to 2147483647, got 0"},
        BadStart{"LongContext", [](Config& c) { c.max_context_tokens = 4096; }, "--max_context_tokens: "},
        BadStart{"ContextThatTheCacheDoesNotHold",
                 [](Config& c) {
                   c.max_context_tokens = 1000;
                   c.kv_cache_mb = 1;
                 },
                 "--max_context_tokens: expected at most the 256 tokens that the K/V cache holds, got 1000, which need "
                 "--kv_cache_mb=4"},
        BadStart{"NameInLatin1", [](Config& c) { c.model_name = "caf\xe9"; },
                 "--model_name: expected UTF-8, got \"caf\\xe9\""},
        BadStart{"DirectoryInLatin1",
                 [](Config& c) {
                   c.model_name.clear();
                   c.model_directory = "/models/caf\xe9";
                 },
                 "--model_name: expected UTF-8, got \"caf\\xe9\""},
        BadStart{"LongName", [](Config& c) { c.model_name = std::string(257, 'a'); },
                 "--model_name: expected at most 256 bytes, got 257"},
        BadStart{"ShortContext", [](Config& c) { c.max_context_tokens = 1; }, "--max_context_tokens: "},
        BadStart{"PromptBytes", [](Config& c) { c.max_prompt_bytes = 0; }, "--max_prompt_bytes: "},
        BadStart{"ReceiveBytes", [](Config& c) { c.max_receive_bytes = 1; }, "--max_receive_bytes: "},
        BadStart{"UnreadBytes", [](Config& c) { c.unread.max_bytes = 0; }, "--max_unread_bytes: "},
        BadStart{"WriteTime", [](Config& c) { c.unread.max_write_time = absl::ZeroDuration(); }, "--max_write_time: "},
        BadStart{"StallTimeout", [](Config& c) { c.engine_stall_timeout = absl::ZeroDuration(); },
                 "--engine_stall_timeout: expected 1ms to 24h, got 0"},
        BadStart{"Grace", [](Config& c) { c.drain_grace = -absl::Seconds(1); }, "--drain_grace: "},
        BadStart{"ConnectionAge", [](Config& c) { c.max_connection_age = absl::Milliseconds(99); },
                 "--max_connection_age: expected 100ms to 24h, got 99ms"},
        BadStart{"OldConnection", [](Config& c) { c.max_connection_age = absl::Hours(25); }, "--max_connection_age: "},
        BadStart{"Growth", [](Config& c) { c.engine.prompts.max_inter_token_growth = 0.5f; },
                 "--max_inter_token_growth: expected a number of at least 1, got 0.5"},
        BadStart{"BurstWindow", [](Config& c) { c.engine.prompts.burst_window = -absl::Seconds(1); },
                 "--burst_window: expected 0 to 1h, got -1s"},
        BadStart{"BurstPrompt", [](Config& c) { c.engine.prompts.max_burst_prompt_tokens = -1; },
                 "--max_burst_prompt_tokens: expected at least 0, got -1"},
        BadStart{"Queue", [](Config& c) { c.engine.max_queued_requests = 0; }, "--max_queued_requests: "},
        BadStart{"QueuedSamples", [](Config& c) { c.engine.max_queued_samples = 0; }, "--max_queued_samples: "},
        BadStart{"QueuedTokens", [](Config& c) { c.engine.max_queued_tokens = 0; }, "--max_queued_tokens: "},
        BadStart{"StepRows", [](Config& c) { c.engine.max_running_samples = 600; },
                 "--max_step_rows: expected at least max_running_samples, 600, got 512"},
        BadStart{"TenantSamples", [](Config& c) { c.engine.tenants.max_running_samples = 0; },
                 "--max_tenant_running_samples: expected at least 1, got 0"},
        BadStart{"TenantTokens", [](Config& c) { c.engine.tenants.max_queued_tokens = 0; },
                 "--max_tenant_queued_tokens: expected at least 1, got 0"},
        BadStart{"NoPriorityAging", [](Config& c) { c.engine.priority_aging = absl::ZeroDuration(); },
                 "--priority_aging: expected 1ms to 24h, got 0"}),
    [](const auto& info) { return info.param.name; });

TEST(BaseName, IsTheLastPartOfAPath) {
  EXPECT_EQ(BaseName("models/llama/"), "llama");
  EXPECT_EQ(BaseName("/llama"), "llama");
  EXPECT_EQ(BaseName("llama"), "llama");
  EXPECT_EQ(BaseName("models/llama.Q4_K_M.gguf"), "llama.Q4_K_M");
  EXPECT_EQ(BaseName("/"), "/");
}

}  // namespace
}  // namespace foretoken::verifier
