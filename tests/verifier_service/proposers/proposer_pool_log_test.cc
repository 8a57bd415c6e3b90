// SPDX-License-Identifier: Apache-2.0
// The log lines that proposers can cause. If this test fails, a proposer can fill the log, forge lines, or block the
// engine through the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/telemetry/line_limit.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "tests/verifier_service/proposers/pool_speaker.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {
namespace {

using telemetry::LineLimit;
using testing::CapturedLog;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::ScriptedProposer;
using ::testing::SizeIs;

TEST(ProposerPoolLog, AVersionForgesNoLine) {
  ScriptedProposer proposer({.version = "1.0\nwarning forged\x1b[2J" + std::string(1000, 'x')});
  CapturedLog log;
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(Eventually([&] { return !log.Lines().empty(); }));
  ASSERT_THAT(log.Lines(), SizeIs(1));
  const std::string line = log.Lines()[0];
  EXPECT_THAT(line, HasSubstr("connected, \"1.0\\nwarning forged\\x1b[2Jxxx"));
  EXPECT_LT(line.size(), 700);
}

TEST(ProposerPoolLog, AFloodOfComplaintsBecomesAFewLinesAndACount) {
  ScriptedProposer proposer({});
  CapturedLog log;
  std::atomic<int> seconds = 0;
  ProposerPoolOptions options = PoolOptions();
  options.max_bad_trees_in_a_row = std::numeric_limits<int32_t>::max();
  options.now = [&] { return absl::UnixEpoch() + absl::Seconds(seconds.load()); };
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  uint64_t session_id = 1000;
  const auto lie = [&](uint64_t num) {
    const uint64_t before = pool->GetCounters()[0].num_bad_trees;
    for (uint64_t i = 0; i < num; ++i) {
      v1::ProposeResponse response;
      // The session was never opened, so each tree causes another complaint.
      response.add_trees()->set_session_id(++session_id);
      proposer.Push(response);
    }
    return Eventually([&] { return pool->GetCounters()[0].num_bad_trees == before + num; });
  };
  ASSERT_TRUE(lie(500));
  const auto num_lines = [&] { return static_cast<int>(log.Lines().size()); };
  ASSERT_TRUE(Eventually([&] { return num_lines() == LineLimit::kBurst; }));
  seconds = static_cast<int>(absl::ToInt64Seconds(LineLimit::kPeriod));
  ASSERT_TRUE(lie(10));
  ASSERT_TRUE(Eventually([&] { return num_lines() > LineLimit::kBurst; }));
  EXPECT_EQ(num_lines(), LineLimit::kBurst + 1) << "one of them says that the proposer is connected";
  EXPECT_THAT(log.Lines().back(), EndsWith(absl::StrCat("(", 500 - LineLimit::kBurst + 1, " lines were left out)")));
}

TEST(ProposerPoolLog, AnotherReplicaIsStillLogged) {
  ScriptedProposer liar({});
  ScriptedProposer other({});
  CapturedLog log;
  ProposerPoolOptions options = PoolOptions();
  options.max_bad_trees_in_a_row = std::numeric_limits<int32_t>::max();
  const auto pool = MakePool({absl::StrCat(Static(liar), ",", other.address())}, options);
  ASSERT_TRUE(IsConnected(*pool, 2));
  for (uint64_t i = 0; i < 100; ++i) {
    v1::ProposeResponse response;
    response.add_trees()->set_session_id(1000 + i);
    liar.Push(response);
  }
  ASSERT_TRUE(Eventually([&] { return pool->GetCounters()[0].num_bad_trees == 100; }));
  other.Kill();
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::any_of(log.Lines(), [&](const std::string& line) {
      return absl::StrContains(line, other.address()) && absl::StrContains(line, "ended");
    });
  }));
}

TEST(ProposerPoolLog, ALogThatBlocksHoldsUpNeitherTheEngineNorAStatus) {
  ScriptedProposer proposer({});
  CapturedLog log;
  log.Block();
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(Eventually([&] { return log.HasWriters(); }));
  auto engine = std::async(std::launch::async, [&] {
    Speaker speaker(*pool, 1);
    return speaker.Regains() && pool->GetStatus()[0].num_connected == 1;
  });
  EXPECT_EQ(engine.wait_for(absl::ToChronoSeconds(kLong)), std::future_status::ready);
  log.Release();
  EXPECT_TRUE(engine.get());
  EXPECT_TRUE(Eventually([&] { return log.Lines().size() == 1; }));
}

}  // namespace
}  // namespace foretoken::verifier
