// SPDX-License-Identifier: Apache-2.0
// The order of waiting requests. If this test fails, priorities are ignored, a request waits forever, a request with
// many samples blocks others, or a tenant with many requests does.
#include "verifier_service/engine/waiting_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kAging = absl::Seconds(10);

class WaitingLineTest : public ::testing::Test {
 protected:
  static absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

  std::shared_ptr<ActiveRequest> Join(WaitingLine& line, GenerationRequest request, absl::Time now) {
    request.prompt = {1};
    request.stop.max_tokens = 1000;
    std::shared_ptr<ActiveRequest> active = sequences_.MakeRequest(std::move(request));
    line.Join(active, now);
    return active;
  }
  std::shared_ptr<ActiveRequest> Join(const std::string& id, absl::Time now, int32_t priority = 0,
                                      int32_t num_samples = 1) {
    return Join(line_, {.request_id = id, .priority = priority, .num_samples = num_samples}, now);
  }
  void JoinMany(WaitingLine& line, const std::string& tenant, int num_requests) {
    for (int i = 0; i < num_requests; ++i) Join(line, {.request_id = tenant, .tenant = tenant}, At(0));
  }
  static const WaitingLine::Entries::value_type* Next(const WaitingLine& line) {
    return line.Next([](const WaitingLine::Entry&) { return true; });
  }
  // Begins a sample of the entry whose turn it is. The sample runs until the test ends it.
  Sequence& Begin(WaitingLine& line, absl::Time now) {
    const auto* const next = Next(line);
    const WaitingLine::Entry& entry = next->second;
    if (entry.preempted == nullptr) running_.push_back(sequences_.Make(entry.active));
    Sequence& sequence = entry.preempted != nullptr ? *entry.preempted : *running_.back();
    line.Begin(*next, sequence, now);
    return sequence;
  }
  // As if the sample had generated this many tokens and ended.
  static void End(WaitingLine& line, Sequence& sequence, int num_tokens) {
    for (int i = 0; i < num_tokens; ++i) {
      line.GoOn(sequence);
      sequence.token_ids.push_back(1);
    }
    line.End(sequence);
  }
  std::string BeginNext(absl::Time now) { return Begin(line_, now).request().request_id; }
  std::vector<std::string> BeginAll(absl::Time now) {
    std::vector<std::string> ids;
    while (!line_.empty()) ids.push_back(BeginNext(now));
    return ids;
  }

  LoneSequences sequences_;
  std::vector<std::unique_ptr<Sequence>> running_;
  WaitingLine line_{kAging};
};

TEST_F(WaitingLineTest, HigherPriorityGoesFirstAndEqualOnesInOrder) {
  Join("first", At(0));
  Join("second", At(0));
  Join("low", At(0), -1);
  Join("high", At(1), 1);
  EXPECT_THAT(BeginAll(At(1)), ElementsAre("high", "first", "second", "low"));
}

TEST_F(WaitingLineTest, AWaitOfPriorityAgingCountsAsOneLevel) {
  Join("low", At(0));
  Join("high, in time", At(9), 1);
  Join("high, late", At(11), 1);
  Join("highest", At(11), 2);
  EXPECT_THAT(BeginAll(At(11)), ElementsAre("highest", "high, in time", "low", "high, late"));
}

TEST_F(WaitingLineTest, RequestsTakeTurnsForAnyNumberOfSamples) {
  Join("many", At(0), 0, 4);
  Join("some", At(0), 0, 2);
  EXPECT_EQ(BeginNext(At(1)), "many");
  Join("one", At(1));
  EXPECT_EQ(BeginNext(At(2)), "some");
  EXPECT_THAT(BeginAll(At(3)), ElementsAre("many", "one", "some", "many", "many"));
}

TEST_F(WaitingLineTest, APreemptedSampleReturnsToItsPlace) {
  Join("preempted", At(0), 0, 2);
  Sequence& sequence = Begin(line_, At(25));
  EXPECT_EQ(line_.EffectivePriority(sequence), 2);
  Join("other", At(26));
  line_.Return(sequence, At(30));
  EXPECT_EQ(sequences_.queue().load().num_samples, 3);
  EXPECT_EQ(Next(line_)->second.preempted, &sequence);
  Begin(line_, At(36));
  EXPECT_EQ(line_.EffectivePriority(sequence), 3) << "its running time does not count as waiting";
  EXPECT_THAT(BeginAll(At(36)), ElementsAre("preempted", "other"));
}

TEST_F(WaitingLineTest, ARemovedRequestIsGone) {
  const std::shared_ptr<ActiveRequest> active = Join("leaves", At(0), 0, 2);
  Join("stays", At(1));
  EXPECT_EQ(BeginNext(At(2)), "leaves");
  line_.Leave(*active);
  line_.Leave(*active);
  EXPECT_THAT(BeginAll(At(3)), ElementsAre("stays"));
}

TEST_F(WaitingLineTest, AFewRequestsDoNotWaitForAnotherTenantsFlood) {
  JoinMany(line_, "flood", 50);
  EXPECT_EQ(BeginNext(At(1)), "flood");
  JoinMany(line_, "few", 3);
  std::vector<std::string> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(BeginNext(At(2)));
  EXPECT_EQ(std::ranges::count(ids, "few"), 3);
}

TEST_F(WaitingLineTest, APriorityOfAnotherTenantMeansNothing) {
  for (int i = 0; i < 9; ++i) Join(line_, {.request_id = "urgent", .tenant = "a", .priority = 100}, At(0));
  Join(line_, {.request_id = "low", .tenant = "b", .priority = -1}, At(0));
  Join(line_, {.request_id = "high", .tenant = "b", .priority = 1}, At(0));
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(BeginNext(At(1)));
  EXPECT_THAT(ids, ElementsAre("urgent", "high", "urgent", "low"));
}

TEST_F(WaitingLineTest, RunningSamplesFollowTheWeights) {
  WaitingLine line(kAging, {.weights = TenantWeights::Load("heavy=3").value()});
  JoinMany(line, "heavy", 200);
  JoinMany(line, "light", 200);
  std::map<std::string, int> num_begun;
  for (int i = 0; i < 100; ++i) {
    Sequence& sequence = Begin(line, At(1));
    ++num_begun[sequence.request().tenant];
    if (i % 2 == 0) End(line, sequence, 40);
  }
  EXPECT_NEAR(num_begun["heavy"], 75, 3);
}

TEST_F(WaitingLineTest, ATenantOfLongOutputsGetsAsManyTokensAsOneOfShortOutputs) {
  JoinMany(line_, "long", 200);
  JoinMany(line_, "short", 900);
  std::map<std::string, int> num_tokens;
  for (int i = 0; i < 660; ++i) {
    Sequence& sequence = Begin(line_, At(1));
    const std::string tenant = sequence.request().tenant;
    const int length = tenant == "long" ? 500 : 50;
    num_tokens[tenant] += length;
    End(line_, sequence, length);
  }
  EXPECT_NEAR(static_cast<double>(num_tokens["long"]) / num_tokens["short"], 1, 0.15);
}

TEST_F(WaitingLineTest, ASamplePaysForMoreTokensWhileItRuns) {
  JoinMany(line_, "long", 50);
  JoinMany(line_, "short", 50);
  Sequence& endless = Begin(line_, At(1));
  ASSERT_EQ(endless.request().tenant, "long");
  for (int i = 0; i < 900; ++i) {
    endless.token_ids.push_back(1);
    line_.GoOn(endless);
  }
  for (int i = 0; i < 9; ++i) EXPECT_EQ(BeginNext(At(1)), "short") << i;
}

// Both tenants had a prompt computed and no token. One of the samples was preempted, which takes nothing back.
TEST_F(WaitingLineTest, APreemptionGivesNoWorkBack) {
  constexpr int kPromptRows = 1000;
  WaitingLine line(kAging);
  for (const char* tenant : {"a", "b"}) {
    line.Join(sequences_.MakeRequest({.request_id = tenant,
                                      .tenant = tenant,
                                      .prompt = std::vector<int32_t>(kPromptRows, 1),
                                      .stop = {.max_tokens = 1000}}),
              At(0));
    JoinMany(line, tenant, 20);
  }
  Sequence& preempted = Begin(line, At(1));
  Sequence& other = Begin(line, At(1));
  ASSERT_NE(preempted.request().tenant, other.request().tenant);
  preempted.num_computed = kPromptRows;
  other.num_computed = kPromptRows;
  line.End(other);
  line.Return(preempted, At(2));
  preempted.num_computed = 0;
  line.Leave(preempted);
  std::map<std::string, int> num_begun;
  for (int i = 0; i < 10; ++i) ++num_begun[Begin(line, At(3)).request().tenant];
  EXPECT_EQ(num_begun["a"], 5);
  EXPECT_EQ(num_begun["b"], 5);
}

TEST_F(WaitingLineTest, ATenantAtItsCapLeavesItsTurns) {
  WaitingLine line(kAging, {.max_running_samples = 2});
  JoinMany(line, "capped", 5);
  Sequence& first = Begin(line, At(1));
  Begin(line, At(1));
  EXPECT_EQ(Next(line), nullptr) << "although nobody else waits";
  EXPECT_FALSE(line.empty());
  JoinMany(line, "other", 1);
  EXPECT_EQ(Begin(line, At(2)).request().tenant, "other");
  End(line, first, 1);
  ASSERT_NE(Next(line), nullptr);
  Sequence& preempted = Begin(line, At(3));
  EXPECT_EQ(Next(line), nullptr);
  line.Return(preempted, At(4));
  EXPECT_EQ(&Begin(line, At(5)), &preempted);
}

TEST_F(WaitingLineTest, TheLastUnbegunRequestIsTheOneThatWaitedLeast) {
  Join(line_, {.request_id = "begun", .tenant = "a", .num_samples = 2}, At(0));
  const auto last = [this] { return line_.LastUnbegun("a"); };
  BeginNext(At(1));
  EXPECT_EQ(last(), nullptr) << "a request with a sample that runs stays";
  Join(line_, {.request_id = "first", .tenant = "a"}, At(2));
  Join(line_, {.request_id = "low", .tenant = "a", .priority = -1}, At(3));
  Join(line_, {.request_id = "second", .tenant = "a"}, At(4));
  EXPECT_EQ(last()->request->request_id, "low");
  line_.Leave(*last());
  EXPECT_EQ(last()->request->request_id, "second");
  EXPECT_EQ(line_.LastUnbegun("b"), nullptr);
}

TEST_F(WaitingLineTest, TenantsThatAreGoneAreForgotten) {
  for (int i = 0; i < 10; ++i) JoinMany(line_, absl::StrCat("tenant ", i), 1);
  EXPECT_EQ(line_.num_tenants(), 10);
  line_.Leave(*line_.LastUnbegun("tenant 9"));
  EXPECT_EQ(line_.num_tenants(), 9);
  while (!line_.empty()) BeginNext(At(1));
  EXPECT_EQ(line_.num_tenants(), 9) << "they run";
  line_.Return(*running_.front(), At(2));
  line_.Leave(*running_.front());
  for (size_t i = 1; i < running_.size(); ++i) End(line_, *running_[i], 5);
  EXPECT_EQ(line_.num_tenants(), 0);
}

TEST_F(WaitingLineTest, TheLengthOfATenantsOutputsIsRememberedWhenItIsGone) {
  const auto usual = [this](const std::string& tenant) {
    return line_.UsualTokens({.tenant = tenant, .stop = {.max_tokens = 20}});
  };
  EXPECT_EQ(usual("short"), std::nullopt);
  for (int i = 0; i < 40; ++i) {
    for (const auto& [tenant, num_tokens] : {std::pair("short", 3), std::pair("long", 100)}) {
      JoinMany(line_, tenant, 1);
      End(line_, Begin(line_, At(i)), num_tokens);
    }
  }
  ASSERT_EQ(line_.num_tenants(), 0);
  EXPECT_NEAR(usual("short").value(), 3, 1);
  EXPECT_EQ(usual("long"), 20) << "its request allows no more";
  EXPECT_EQ(usual("new"), std::nullopt);
}

}  // namespace
}  // namespace foretoken::verifier
