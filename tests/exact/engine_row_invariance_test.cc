// SPDX-License-Identifier: Apache-2.0
// Row invariance (E1) as a client sees it: the bits of log-probabilities of prompt and output. An engine with room for
// everything and one request at a time must agree with engines that batch, guess, reuse cached blocks and preempt. If
// this test fails, a client's log-probabilities or tokens depend on the load of the server.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/variant_backend.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/exact_models.h"
#include "tests/testing/models/quantized_twins.h"
#include "tests/testing/models/test_device.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using testing::InProcessProposers;

constexpr int32_t kVocabulary = 4096;  // of the demo's tokenizer, which the random models use

std::string DirectoryOf(const std::string& model) {
  return testing::SourcePath(model.starts_with("demo") ? "deploy/demo/target" : "tests/cases/models/" + model);
}

bool IsTiny(const std::string& model) {
  return std::ranges::find(testing::kFamilyModels, model) != std::end(testing::kFamilyModels);
}

// All tokens, and the bits of all log-probabilities.
struct Generated {
  std::vector<int32_t> token_ids;
  std::vector<std::pair<int32_t, uint32_t>> logprobs;

  void Take(const std::vector<kernels::RowLogprobs>& rows) {
    const auto take = [this](const kernels::TokenLogprob& entry) {
      logprobs.push_back({entry.token_id, std::bit_cast<uint32_t>(entry.logprob)});
    };
    for (const kernels::RowLogprobs& row : rows) {
      take(row.token);
      for (const kernels::TokenLogprob& entry : row.top) take(entry);
    }
  }
  friend bool operator==(const Generated&, const Generated&) = default;
};

using Outputs = std::map<Ticket, Generated>;

struct EngineSetup {
  EngineConfig config;
  int32_t num_blocks = 512;
};

class EngineRowInvariance : public ::testing::TestWithParam<std::string> {
 protected:
  static testing::LoadedModel Load(testing::LoadOptions options = {.num_threads = 1}) {
    if (GetParam() == "demo_w4a16") options.quantization = {.weights = "int4"};
    if (GetParam() == "demo_w4a8") options.quantization = {.weights = "int4", .head = "int8", .activations = "int8"};
    if (GetParam() == "demo_kv_int8") options.quantization = {.kv_cache = "int8"};
    if (GetParam() == "demo_w4a8_kv_fp8") {
      options.quantization = {.weights = "int4", .activations = "int8", .kv_cache = "fp8"};
    }
    if (GetParam().starts_with("demo") || IsTiny(GetParam()))
      return testing::LoadModel(DirectoryOf(GetParam()), options);
    auto models = testing::RandomExactModels(kVocabulary);
    std::ranges::move(testing::StoredExactModels(), std::back_inserter(models));
    return testing::LoadExactModel(*std::ranges::find(models, GetParam(), &testing::ExactModel::name), options);
  }

  void SetUp() override {
    const bool has_int8_rows = GetParam().starts_with("demo_w4a8");
    if (has_int8_rows && testing::TestDevice() != "cpu") GTEST_SKIP() << "only the CPU has rows of integers";
  }

  static int32_t Vocabulary() {
    if (GetParam() == "awq" || GetParam() == "mxfp4_U8") return testing::QuantizedTwins::Config()["vocab_size"];
    if (!IsTiny(GetParam())) return kVocabulary;
    return static_cast<int32_t>(model::LoadModelConfig(DirectoryOf(GetParam()))->vocab_size);
  }

  // Prompts with a common beginning that is longer than the windows and the original contexts of the scalings.
  static std::vector<GenerationRequest> Requests() {
    const int32_t vocabulary = Vocabulary();
    std::vector<GenerationRequest> requests;
    for (uint32_t i = 0; i < 5; ++i) {
      GenerationRequest& request = requests.emplace_back();
      request.ticket = i + 1;
      request.request_id = std::to_string(i);
      request.prompt = testing::RandomTokens(50, vocabulary, 1);
      for (const int32_t id : testing::RandomTokens(5 + 20 * i, vocabulary, 2 + i)) request.prompt.push_back(id);
      request.sampling = {.temperature = i == 0 ? 0.0f : 0.8f, .seed = 7 + i};
      request.stop = {.max_tokens = 40, .ignore_eos = true};
      request.output.num_logprobs = 5;
      // The engine computes a scored prompt from its first token on. Other prompts can begin with cached blocks.
      if (i % 2 == 0) request.output.num_prompt_logprobs = 3;
    }
    return requests;
  }

  // Runs all requests at once to their end.
  Outputs Generate(testing::LoadedModel& model, const std::vector<GenerationRequest>& requests,
                   ProposerClient& proposers, const EngineSetup& setup = {}) {
    Outputs results;
    model::KvCache kv = model.transformer->MakeKvCache(setup.num_blocks);
    Engine engine(setup.config, {.transformer = model.transformer.get(),
                                 .kv = &kv,
                                 .tokenizer = &tokenizer_,
                                 .proposers = &proposers,
                                 .end_token_ids = {},
                                 .publish = [&](const std::vector<SampleOutput>& outputs) {
                                   for (const SampleOutput& output : outputs) {
                                     EXPECT_TRUE(output.error.ok()) << output.error;
                                     Generated& generated = results[output.ticket];
                                     generated.token_ids.insert(generated.token_ids.end(), output.token_ids.begin(),
                                                                output.token_ids.end());
                                     if (output.prompt.has_value()) generated.Take(output.prompt->logprobs);
                                     generated.Take(output.logprobs);
                                   }
                                 }});
    for (const GenerationRequest& request : requests) {
      EXPECT_TRUE(engine.Submit(engine.Reserve().value(), request).ok());
    }
    while (engine.Step()) continue;
    stats_ = engine.GetStats();
    return results;
  }

  // Runs each request alone, without guesses.
  Outputs GeneratePlainly(testing::LoadedModel& model) {
    Outputs results;
    InProcessProposers none;
    for (const GenerationRequest& request : Requests()) results.merge(Generate(model, {request}, none));
    EXPECT_EQ(results.size(), Requests().size());
    for (const auto& [ticket, result] : results) EXPECT_EQ(result.token_ids.size(), 40);
    return results;
  }

  // Guesses the tokens of `truth`, with wrong siblings.
  static InProcessProposers Oracle(const Outputs& truth) {
    std::vector<std::vector<int32_t>> texts;
    for (const GenerationRequest& request : Requests()) {
      texts.push_back(request.prompt);
      const std::vector<int32_t>& output = truth.at(request.ticket).token_ids;
      texts.back().insert(texts.back().end(), output.begin(), output.end());
    }
    return InProcessProposers({{"oracle", testing::Oracle(std::move(texts), Vocabulary())}});
  }

  const tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  EngineStats stats_;
};

std::string NameOfModel(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, EngineRowInvariance,
                         ::testing::Values("demo", "demo_w4a16", "demo_w4a8", "demo_kv_int8", "demo_w4a8_kv_fp8",
                                           "windowed", "odd_heads", "wide", "awq", "mxfp4_U8", "q4_k_m"),
                         NameOfModel);
INSTANTIATE_TEST_SUITE_P(Families, EngineRowInvariance,
                         ::testing::ValuesIn(std::vector<std::string>(std::begin(testing::kFamilyModels),
                                                                      std::end(testing::kFamilyModels))),
                         NameOfModel);

TEST_P(EngineRowInvariance, LogprobsDoNotDependOnTheBatchOrThreads) {
  testing::LoadedModel model = Load();
  const Outputs truth = GeneratePlainly(model);
  InProcessProposers none;
  EXPECT_EQ(Generate(model, Requests(), none), truth);
  EXPECT_EQ(Generate(model, Requests(), none, {.config = {.max_running_samples = 2, .max_step_rows = 5}}), truth);
  testing::LoadedModel dual = Load({.num_threads = 2});
  EXPECT_EQ(Generate(dual, Requests(), none), truth);
}

TEST_P(EngineRowInvariance, LogprobsDoNotDependOnSpeculation) {
  testing::LoadedModel model = Load();
  const Outputs truth = GeneratePlainly(model);
  InProcessProposers oracle = Oracle(truth);
  EXPECT_EQ(Generate(model, Requests(), oracle), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 20);
}

TEST_P(EngineRowInvariance, LogprobsDoNotDependOnCachedPrefixes) {
  testing::LoadedModel model = Load();
  const Outputs truth = GeneratePlainly(model);
  InProcessProposers none;
  // The requests run one after another on one engine. Each finds the beginning that the first request cached.
  EXPECT_EQ(Generate(model, Requests(), none, {.config = {.max_running_samples = 1}}), truth);
  EXPECT_GE(stats_.num_cached_tokens, 2 * 48);
  EXPECT_EQ(Generate(model, Requests(), none, {.config = {.max_running_samples = 1, .enable_prefix_cache = false}}),
            truth);
  EXPECT_EQ(stats_.num_cached_tokens, 0);
}

TEST_P(EngineRowInvariance, LogprobsDoNotDependOnPreemption) {
  testing::LoadedModel model = Load();
  const Outputs truth = GeneratePlainly(model);
  InProcessProposers oracle = Oracle(truth);
  for (const bool enable_prefix_cache : {true, false}) {
    // The longest sequence has 175 tokens, which is 11 blocks. Two sequences that run side by side need more than 12 in
    // the end, whichever of them is faster.
    const EngineSetup tight = {.config = {.enable_prefix_cache = enable_prefix_cache}, .num_blocks = 12};
    EXPECT_EQ(Generate(model, Requests(), oracle, tight), truth);
    EXPECT_GT(stats_.num_preemptions, 0);
  }
}

// The control: a computation that is not invariant changes the client's output, with the kernels of every instruction
// set.
TEST_P(EngineRowInvariance, AMatMulThatSplitsItsInputsForBatchesIsDetected) {
  for (const std::string& isa : kernels::SupportedCpuIsas()) {
    testing::LoadedModel model = Load({.num_threads = 1,
                                       .isa = isa,
                                       .device = "cpu",
                                       .wrap_backend = testing::WithVariant(testing::Variant::kMatMulSplitsInputs)});
    InProcessProposers none;
    EXPECT_NE(Generate(model, Requests(), none), GeneratePlainly(model)) << isa;
  }
}

}  // namespace
}  // namespace foretoken::verifier
