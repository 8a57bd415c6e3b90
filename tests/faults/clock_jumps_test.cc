// SPDX-License-Identifier: Apache-2.0
// The system's clock jumps by an hour while the services run and their connections last: gRPC's own waits, for example
// between attempts to connect, follow that clock in some versions. If this test fails, a timeout, a pause or a period
// follows that clock, so it ends too early or not for an hour.
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

// The clock of the processes that load the library (preload/clock_shift.cc).
class ShiftedClock {
 public:
  ShiftedClock() { Set(0); }
  std::vector<std::string> Environment() const {
    return {std::string("LD_PRELOAD=") + FORETOKEN_CLOCK_SHIFT, "CLOCK_SHIFT_FILE=" + path()};
  }
  void Set(double seconds) const {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    if (!file.is_open()) file.open(path(), std::ios::binary | std::ios::out);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
  }

 private:
  std::string path() const { return directory_.path() + "/shift"; }

  const testing::TempDir directory_;
};

class ClockJumps : public ::testing::TestWithParam<double> {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "a sanitizer must be loaded before any other library";
  }
};

TEST_P(ClockJumps, StopNothing) {
  const ShiftedClock clock;
  const testing::TempDir directory;
  ServiceProcess proposer(
      "foretoken_proposer",
      {"--method=suffix", "--suffix_snapshot=" + directory.path() + "/outputs", "--suffix_snapshot_interval=300ms"},
      clock.Environment());
  ServiceProcess verifier("foretoken_verifier",
                          {"--proposer=suffix=static:" + proposer.address(), "--max_write_time=1s"},
                          clock.Environment());
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 2});
  ASSERT_TRUE(load.AcceptsMore());
  const auto written_at = [&] { return proposer.Metric("foretoken_suffix_snapshot_timestamp_seconds"); };
  ASSERT_TRUE(WaitUntil([&] { return written_at() > 0; }));
  const QuietLevels levels({&verifier, &proposer});

  const double before = written_at();
  clock.Set(GetParam());
  EXPECT_TRUE(load.AcceptsMore()) << "after the jump";
  EXPECT_TRUE(WaitUntil([&] { return written_at() > before; })) << "snapshots stop";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
  EXPECT_EQ(verifier.Terminate(), 0);
}

INSTANTIATE_TEST_SUITE_P(Hours, ClockJumps, ::testing::Values(3600.0, -3600.0),
                         [](const auto& info) { return info.param > 0 ? "Ahead" : "Back"; });

}  // namespace
}  // namespace foretoken
