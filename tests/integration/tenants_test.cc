// SPDX-License-Identifier: Apache-2.0
// The separation of tenants in the suffix proposer's memory. If this test fails, one tenant's outputs show in the
// guesses for another tenant's requests, and so in their steps and times.
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"

namespace foretoken {
namespace {

// Text with few repetitions, so only learned text gives good guesses.
v1::GenerateRequest SurprisingRequest(const std::string& tenant) {
  v1::GenerateRequest request = RepetitiveRequest(0);
  request.set_text("import ");
  request.set_tenant(tenant);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_frequency_penalty(2);
  request.mutable_sampling()->set_repetition_penalty(1.5f);
  return request;
}

class Tenants : public ::testing::Test {
 protected:
  struct Run {
    std::vector<uint32_t> token_ids;
    uint32_t num_steps = 0;
  };

  // By default proposers are asked in every step, whatever the planner makes of them on a busy machine.
  Run Generate(const std::string& tenant, v1::SpeculationMode mode = v1::SPECULATION_MODE_ALWAYS) {
    v1::GenerateRequest request = SurprisingRequest(tenant);
    request.mutable_speculation()->set_mode(mode);
    const absl::StatusOr<client::Generation> generation = client_.Generate(request);
    EXPECT_TRUE(generation.ok()) << generation.status();
    const client::Sample& sample = generation.value().samples.at(0);
    return {.token_ids = sample.token_ids, .num_steps = sample.completion->usage().steps()};
  }
  // Waits until the proposer has learned this many outputs.
  bool HasLearned(int num_outputs) const {
    return WaitUntil([&] { return proposer_.Metric("foretoken_suffix_outputs") == num_outputs; });
  }

  ServiceProcess proposer_{"foretoken_proposer", {"--method=suffix"}};
  ServiceProcess verifier_{"foretoken_verifier", {"--proposer=suffix=static:" + proposer_.address()}};
  client::GenerationClient client_ = Connect(verifier_);
};

TEST_F(Tenants, AnothersStepsDoNotShowATenantsText) {
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client_) == 1; }));
  const Run first = Generate("a");
  EXPECT_GT(first.num_steps, kRequestTokens * 9 / 10) << "the test proves nothing: the text repeats itself";
  ASSERT_TRUE(HasLearned(1));
  EXPECT_GE(proposer_.Metric("foretoken_suffix_tokens"), kRequestTokens);
  EXPECT_EQ(proposer_.Metric("foretoken_suffix_tenants"), 1);
  const Run again = Generate("a");
  EXPECT_LT(again.num_steps, first.num_steps / 2) << "the test proves nothing: learned text gives no accepted guess";
  ASSERT_TRUE(HasLearned(2));
  // Other tenants need as many steps as the first request.
  const Run other = Generate("b");
  EXPECT_GT(other.num_steps, kRequestTokens * 9 / 10);
  ASSERT_TRUE(HasLearned(3));
  const Run nobody = Generate("");
  EXPECT_GT(nobody.num_steps, kRequestTokens * 9 / 10);
  ASSERT_TRUE(HasLearned(4));
  EXPECT_EQ(proposer_.Metric("foretoken_suffix_tenants"), 3);

  const Run off = Generate("b", v1::SPECULATION_MODE_OFF);
  for (const Run* run : std::initializer_list<const Run*>{&first, &again, &other, &nobody})
    EXPECT_EQ(run->token_ids, off.token_ids);
}

}  // namespace
}  // namespace foretoken
