// SPDX-License-Identifier: Apache-2.0
// The engine on the CUDA backend. If this test fails, a client of a GPU server gets tokens that depend on proposers
// (E2) or that differ from the greedy tokens of the CPU.
#include "verifier_service/engine/engine.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::InProcessProposers;
using testing::Result;
using testing::Results;

class CudaEngineTest : public testing::EngineFixture {
 protected:
  // Uses the demo's draft model, which is small and has the same vocabulary.
  void SetUp() override {
    kernels::MadeBackend made = kernels::cuda::MakeBackend({.device = "cuda"});
    if (made.backend == nullptr) GTEST_SKIP() << made.error;
    cuda_model_ = testing::LoadModel(testing::SourcePath("deploy/demo/draft"),
                                     {.wrap_backend = [&](auto) { return std::move(made.backend); },
                                      .transformer = {.max_rows = 64, .max_logit_rows = 64, .max_positions = 128}});
    Use(*cuda_model_.transformer);
  }

  testing::LoadedModel cuda_model_;
};

TEST_F(CudaEngineTest, TokensDoNotDependOnProposers) {
  std::vector<GenerationRequest> requests = {Request("import os\n", 0, 8), Request("x = 1\n", 0.8f, 8)};
  requests[0].output.num_prompt_logprobs = 2;
  requests[1].output.num_logprobs = 2;
  const testing::EngineOptions options = {
      .config = {.max_running_samples = 4, .max_step_rows = 64}, .num_blocks = 24, .now = testing::EvenClock()};
  InProcessProposers none;
  const Results truth = Generate(requests, none, options);
  const uint64_t num_plain_steps = stats_.num_steps;
  ASSERT_EQ(truth.size(), 2);
  for (const auto& [key, result] : truth) {
    EXPECT_EQ(result.token_ids.size(), 8);
    EXPECT_EQ(result.error, absl::OkStatus());
  }
  EXPECT_EQ(truth.at({1, 0}).prompt_logprobs.size(), requests[0].prompt.size() - 1);
  EXPECT_EQ(truth.at({2, 0}).logprobs.size(), 8);

  InProcessProposers oracle({{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}});
  EXPECT_EQ(Generate(requests, oracle, options), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 4);
  EXPECT_LT(stats_.num_steps, num_plain_steps);
}

// The CPU and the GPU differ only by rounding, and greedy draws of a trained model do not change by that.
TEST_F(CudaEngineTest, GivesTheGreedyTokensOfTheCpu) {
  const std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0, 6)};
  const testing::EngineOptions options = {.config = {.max_running_samples = 4, .max_step_rows = 64}, .num_blocks = 24};
  InProcessProposers none;
  const Results cuda = Generate(requests, none, options);
  const testing::LoadedModel cpu_model = testing::LoadModel(testing::SourcePath("deploy/demo/draft"));
  Use(*cpu_model.transformer);
  EXPECT_EQ(Generate(requests, none, options), cuda);
}

}  // namespace
}  // namespace foretoken::verifier
