// SPDX-License-Identifier: Apache-2.0
// The time from a proposer's return to its first accepted guess, and the steps meanwhile. If this test fails, the
// verifier leaves a healthy proposer unused for longer than docs/limits.md says, or its steps wait for an absent one.
#include <signal.h>

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/faults/step_waits.h"
#include "tests/integration/connect.h"
#include "tests/integration/proposer_methods.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/tcp_relay.h"

namespace foretoken {
namespace {

using testing::TcpRelay;

constexpr absl::Duration kMaxRegain = absl::Seconds(2);

struct Outage {
  std::string name;
  // Longer than the silence after which the verifier gives a connection up, and long enough for its attempts to have
  // become as rare as they can.
  absl::Duration length;
};

void PrintTo(const Outage& outage, std::ostream* out) { *out << outage.name; }

class Regain : public ::testing::TestWithParam<Outage> {
 protected:
  void Begin() {
    if (GetParam().name == "Killed") proposer_.Kill();
    if (GetParam().name == "Stopped") proposer_.process().Signal(SIGSTOP);
    if (GetParam().name == "Partitioned") relay_.Freeze();
  }
  // Returns when the proposer can be used: it listens, runs, or is reachable.
  void End() {
    if (GetParam().name == "Killed") proposer_.Restart();
    if (GetParam().name == "Stopped") proposer_.process().Signal(SIGCONT);
    if (GetParam().name == "Partitioned") relay_.Heal();
  }
  // Returns the time from the end of an outage to the first accepted guess, less the time that the machine takes for
  // 20 tokens per stream: milliseconds, unless it runs other programs.
  absl::Duration Measure(StreamLoad& load) {
    EXPECT_TRUE(load.AcceptsMore()) << "the test proves nothing: no guess is accepted before the outage";
    Begin();
    absl::SleepFor(GetParam().length);
    EXPECT_TRUE(WaitUntil([&] { return NumConnected(client_) == 0; }));
    EXPECT_TRUE(load.Continues());  // the verifier has used up the trees that came before
    const absl::Time paced_from = absl::Now();
    EXPECT_TRUE(load.Continues());
    const absl::Duration pace = absl::Now() - paced_from;
    End();
    const absl::Time begin = absl::Now();
    EXPECT_TRUE(load.AcceptsMore(1)) << "after the outage";
    const absl::Duration regain = absl::Now() - begin;
    std::printf("%s for %s: the first accepted guess came %.0f ms after the return; 20 tokens take %.0f ms\n",
                GetParam().name.c_str(), absl::FormatDuration(GetParam().length).c_str(),
                absl::ToDoubleMilliseconds(regain), absl::ToDoubleMilliseconds(pace));
    return regain - pace;
  }

  ServiceProcess proposer_{"foretoken_proposer", {}};
  TcpRelay relay_{proposer_.address()};
  ServiceProcess verifier_{"foretoken_verifier",
                           {"--proposer=ngram=static:" + relay_.address(), "--allow_step_reports"}};
  client::GenerationClient client_ = Connect(verifier_);
};

// A machine that runs other tests may be busy at the wrong moment, so the best of three counts.
TEST_P(Regain, TakesTwoSeconds) {
  StepWaits waits;
  StreamLoad load(client_, waits.Watch({.num_streams = 2}));
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_, &proposer_});
  absl::Duration best = Measure(load);
  for (int i = 0; i < 2 && best > kMaxRegain; ++i) best = std::min(best, Measure(load));
  EXPECT_LE(best, kMaxRegain);
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
  waits.ExpectThatNoneIsTooLong();
}

class RegainLong : public Regain {};

TEST_P(RegainLong, TakesTwoSecondsEveryTime) {
  StreamLoad load(client_, {.num_streams = 2});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_, &proposer_});
  absl::Duration longest;
  for (int i = 0; i < 10; ++i) longest = std::max(longest, Measure(load));
  EXPECT_LE(longest, kMaxRegain);
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

INSTANTIATE_TEST_SUITE_P(Outages, Regain,
                         ::testing::Values(Outage{"Killed", absl::Seconds(4)}, Outage{"Stopped", absl::Seconds(6)},
                                           Outage{"Partitioned", absl::Seconds(6)}),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Outages, RegainLong,
                         ::testing::Values(Outage{"Killed", absl::Seconds(12)}, Outage{"Stopped", absl::Seconds(12)},
                                           Outage{"Partitioned", absl::Seconds(12)}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken
