// SPDX-License-Identifier: Apache-2.0
// The order of waiting requests. If this test fails, priorities are ignored, a request waits forever, or a request with
// many samples blocks others.
#include "verifier_service/engine/waiting_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kAging = absl::Seconds(10);

class WaitingLineTest : public ::testing::Test {
 protected:
  static absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

  std::shared_ptr<ActiveRequest> Join(const std::string& id, absl::Time now, int32_t priority = 0,
                                      int32_t num_samples = 1) {
    std::shared_ptr<ActiveRequest> active =
        sequences_.MakeRequest({.request_id = id, .priority = priority, .prompt = {1}, .num_samples = num_samples});
    line_.Join(active, now);
    return active;
  }
  // Begins a sample of the first entry. Returns its request's id.
  std::string BeginNext(absl::Time now) {
    const auto& [place, entry] = *line_.entries().begin();
    const std::string id = entry.active->request->request_id;
    line_.Begin(LinePlace(place), now);
    return id;
  }
  std::vector<std::string> BeginAll(absl::Time now) {
    std::vector<std::string> ids;
    while (!line_.entries().empty()) ids.push_back(BeginNext(now));
    return ids;
  }

  LoneSequences sequences_;
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
  const std::shared_ptr<ActiveRequest> active = Join("preempted", At(0), 0, 2);
  const std::unique_ptr<Sequence> sequence = sequences_.Make(active);
  sequence->line_place = line_.entries().begin()->first;
  sequence->waited += line_.Begin(sequence->line_place, At(25));
  EXPECT_EQ(line_.EffectivePriority(*sequence), 2);
  Join("other", At(26));
  line_.Return(*sequence, At(30));
  EXPECT_EQ(sequences_.queue().load().num_samples, 3);
  EXPECT_EQ(line_.entries().begin()->second.preempted, sequence.get());
  sequence->waited += line_.Begin(sequence->line_place, At(36));
  EXPECT_EQ(line_.EffectivePriority(*sequence), 3) << "its running time does not count as waiting";
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

}  // namespace
}  // namespace foretoken::verifier
