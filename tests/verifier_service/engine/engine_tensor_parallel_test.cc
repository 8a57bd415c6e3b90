// SPDX-License-Identifier: Apache-2.0
// The engine on a model that two ranks share. If this test fails, a client's tokens depend on speculation, batch or
// preemption as soon as tensor parallelism is on (E1, E2), for example because one rank does not move accepted K/V.
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::InProcessProposers;
using testing::Results;

class TensorParallelEngine : public testing::EngineFixture {
 protected:
  TensorParallelEngine() : shared_(testing::LoadModel(testing::SourcePath("deploy/demo/target"), {.num_ranks = 2})) {
    Use(*shared_.transformer);
  }

  std::vector<GenerationRequest> Requests() {
    next_ticket_ = 1;
    std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0),
                                               Request("import os\nimport sys\n", 0.8f),
                                               Request("for i in range(10):\n    print(i)\n", 1.2f)};
    requests[1].sampling.top_p = 0.9f;
    requests[1].output.num_logprobs = 3;
    requests[1].num_samples = 2;
    requests[2].sampling.repetition_penalty = 1.3f;
    requests[2].output.num_prompt_logprobs = 2;
    requests[2].banned_token_ids = {258};  // needs a mask in the memory of the drawing rank
    return requests;
  }

  static testing::Guess Oracle(const Results& truth, const std::vector<GenerationRequest>& requests) {
    return testing::Oracle(testing::WholeTexts(truth, requests));
  }

  testing::LoadedModel shared_;
};

TEST_F(TensorParallelEngine, TokensDoNotDependOnProposersOrTheBatch) {
  const std::vector<GenerationRequest> requests = Requests();
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  ASSERT_EQ(truth.size(), 4);

  InProcessProposers oracle({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, oracle), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 50);

  InProcessProposers several({{"random", testing::Random(2)}, {"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, several), truth);
  EXPECT_GT(stats_.proposers[1].num_accepted, 50);

  EXPECT_EQ(Generate(requests, oracle, {.config = {.max_running_samples = 1, .max_step_rows = 5}}), truth);
}

TEST_F(TensorParallelEngine, TokensDoNotDependOnPreemption) {
  std::vector<GenerationRequest> requests = Requests();
  for (GenerationRequest& request : requests) {
    request.stop.max_tokens = 80;
    request.stop.ignore_eos = true;
  }
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  InProcessProposers oracle({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, oracle, {.num_blocks = 9}), truth);
  EXPECT_GT(stats_.num_preemptions, 0);
}

}  // namespace
}  // namespace foretoken::verifier
