// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken bench --compare` reports a wrong speedup, or misses a changed token.
#include "client/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/testing/fakes/fake_generation_service.h"

namespace foretoken::client {
namespace {

using foretoken::testing::FakeGenerationService;
using foretoken::testing::GenerateFromPrompt;
using foretoken::v1::GenerateRequest;
using foretoken::v1::SPECULATION_MODE_ALWAYS;
using foretoken::v1::SPECULATION_MODE_AUTO;
using foretoken::v1::SPECULATION_MODE_OFF;
using ::testing::ElementsAre;

std::vector<GenerateRequest> Requests(int count) {
  std::vector<GenerateRequest> requests(count);
  for (int i = 0; i < count; ++i) requests[i].set_text(std::string(1, static_cast<char>('a' + i)) + "xyz");
  return requests;
}

Comparison CompareOn(const FakeGenerationService& service, const std::vector<GenerateRequest>& requests,
                     int num_clients) {
  GenerationClient client = *GenerationClient::Connect({.target = service.target()});
  return Compare(client, requests, {.num_clients = num_clients}, [](const TimedGeneration&) {});
}

TEST(Compare, FindsEqualTokensEqual) {
  FakeGenerationService service;
  const Comparison comparison = CompareOn(service, Requests(5), 2);
  EXPECT_TRUE(comparison.AllEqual());
  EXPECT_EQ(comparison.num_compared, 5);
  EXPECT_EQ(comparison.off.tokens_per_step, 1);
  EXPECT_EQ(comparison.on.tokens_per_step, 2);
  EXPECT_GT(comparison.speedup.value().ratio.median, 0);
  EXPECT_EQ(comparison.speedup->num_rounds, 3);
}

TEST(Compare, AlternatesOffAndOnAndKeepsEverythingElseEqual) {
  FakeGenerationService service;
  CompareOn(service, Requests(2), 1);
  std::vector<int> modes;
  std::vector<uint64_t> seeds;
  std::vector<GenerateRequest> sent = service.requests();
  sent.erase(sent.begin(), sent.begin() + 2);  // the two warm-up requests
  for (const GenerateRequest& request : sent) {
    modes.push_back(request.speculation().mode());
    seeds.push_back(request.sampling().seed());
  }
  EXPECT_THAT(modes,
              ElementsAre(SPECULATION_MODE_OFF, SPECULATION_MODE_AUTO, SPECULATION_MODE_AUTO, SPECULATION_MODE_OFF));
  EXPECT_THAT(seeds, ElementsAre(0, 0, 1, 1));
  std::set<std::string> tenants;
  for (const GenerateRequest& request : service.requests()) tenants.insert(request.tenant());
  EXPECT_THAT(tenants,
              ElementsAre("/speculation-off", "/speculation-off/first", "/speculation-on", "/speculation-on/first"));
}

TEST(OneWay, KeepsARequestForSpeculationAtAnyCost) {
  GenerateRequest request;
  request.mutable_speculation()->set_mode(SPECULATION_MODE_ALWAYS);
  EXPECT_EQ(OneWay(request, /*on=*/true, 0).speculation().mode(), SPECULATION_MODE_ALWAYS);
  EXPECT_EQ(OneWay(request, /*on=*/false, 0).speculation().mode(), SPECULATION_MODE_OFF);
  EXPECT_EQ(OneWay(GenerateRequest(), /*on=*/true, 0).speculation().mode(), SPECULATION_MODE_AUTO);
}

TEST(KeepsTokens, IsPromisedByTheKeyedDrawAndAtTemperatureZero) {
  GenerateRequest request;
  request.mutable_sampling()->set_temperature(0.8F);
  EXPECT_TRUE(KeepsTokens(request));
  request.set_verification(foretoken::v1::VERIFICATION_RULE_KEYED_DRAW);
  EXPECT_TRUE(KeepsTokens(request));
  request.set_verification(foretoken::v1::VERIFICATION_RULE_REJECTION_SAMPLING);
  EXPECT_FALSE(KeepsTokens(request));
  request.mutable_sampling()->clear_temperature();
  EXPECT_FALSE(KeepsTokens(request)) << "the model's default may be any";
  request.mutable_sampling()->set_temperature(0);
  EXPECT_TRUE(KeepsTokens(request));
}

std::string LineOf(const std::vector<double>& ratios) {
  return ToLine({.ratio = MedianInterval(ratios), .num_rounds = static_cast<int>(ratios.size())});
}

TEST(Speedup, IsTheMedianWithItsConfidenceInterval) {
  EXPECT_EQ(LineOf({1.5, 1.4, 1.6, 1.2, 1.7, 1.3, 1.8, 1.45, 1.56, 9}),
            "speedup 1.53x, [1.30, 1.80] with 95 % confidence over 10 rounds");
  EXPECT_EQ(LineOf({1.14, 1.2, 0.9, 1.3, 0.95, 1.15}),
            "no speedup that stands out from the noise: 1.15x, [0.90, 1.30] with 95 % confidence over 6 rounds");
  EXPECT_EQ(LineOf({1.1, 1.2, 1.14}),
            "speedup 1.14x, rounds [1.10, 1.20]: 3 are too few to tell it from noise; send more requests");
}
TEST(Compare, NamesTheFirstTokenThatDiffers) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    if (request.speculation().mode() == SPECULATION_MODE_OFF) return GenerateFromPrompt(request, context, write);
    GenerateRequest changed = request;
    if (request.text() == "bxyz") changed.mutable_text()->at(2) = '!';
    return GenerateFromPrompt(changed, context, write);
  });
  const Comparison comparison = CompareOn(service, Requests(3), 1);
  EXPECT_FALSE(comparison.AllEqual());
  EXPECT_THAT(comparison.differences,
              ElementsAre("request 1, sample 0: token 2 is 121 with speculation off and 33 with speculation on"));
}

TEST(Compare, NamesATokenThatIsAbsent) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    GenerateRequest shorter = request;
    if (request.speculation().mode() != SPECULATION_MODE_OFF) shorter.mutable_stopping()->set_max_tokens(15);
    return GenerateFromPrompt(shorter, context, write);
  });
  EXPECT_THAT(CompareOn(service, Requests(1), 1).differences,
              ElementsAre("request 0, sample 0: token 15 is 122 with speculation off and absent with speculation on"));
}

TEST(Compare, DoesNotCallAFailedRequestEqual) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    if (request.text() == "bxyz") return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
    return GenerateFromPrompt(request, context, write);
  });
  const Comparison comparison = CompareOn(service, Requests(3), 3);
  EXPECT_EQ(comparison.num_compared, 2);
  EXPECT_FALSE(comparison.AllEqual());
  EXPECT_EQ(comparison.on.errors.at("RESOURCE_EXHAUSTED"), 1);
  EXPECT_FALSE(comparison.speedup.has_value());
}

TEST(Compare, CallsACutOffOutputAFailureAndNoDifference) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    if (request.speculation().mode() == SPECULATION_MODE_OFF) return GenerateFromPrompt(request, context, write);
    return testing::CutOff(foretoken::v1::FINISH_REASON_SHUTDOWN)(request, context, write);
  });
  const Comparison comparison = CompareOn(service, Requests(2), 1);
  EXPECT_THAT(comparison.differences, ElementsAre());
  EXPECT_EQ(comparison.num_compared, 0);
  EXPECT_FALSE(comparison.AllEqual());
  EXPECT_EQ(comparison.on.errors.at("UNAVAILABLE"), 2);
}

}  // namespace
}  // namespace foretoken::client
