// SPDX-License-Identifier: Apache-2.0
// The end of a process after a device failure. If this test fails, clients wait for answers that never come, or a
// server hangs and is not restarted.
#include "kernels/device_failure.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace foretoken::kernels {
namespace {

class EndOnDeviceFailureDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EndOnDeviceFailureDeathTest, NamesTheFailureAndEndsTheProcess) {
  EXPECT_EXIT(EndOnDeviceFailure("x.cu:3: Launch(): lost"), ::testing::KilledBySignal(SIGABRT), "^x.cu:3: .*: lost\n$");
}

TEST_F(EndOnDeviceFailureDeathTest, CallsTheHandlerFirst) {
  const auto fail = [] {
    SetDeviceFailureHandler([](const std::string& what) { std::fprintf(stderr, "told: %s\n", what.c_str()); });
    EndOnDeviceFailure("lost");
  };
  EXPECT_DEATH(fail(), "^lost\ntold: lost\n$");
}

TEST_F(EndOnDeviceFailureDeathTest, EndsThoughTheHandlerNeverReturns) {
  const auto fail = [] {
    SetDeviceFailureHandler([](const std::string&) { std::this_thread::sleep_for(std::chrono::hours(1)); });
    EndOnDeviceFailure("lost");
  };
  EXPECT_DEATH(fail(), "^lost\n$");
}

// Several ranks may fail together, and the handler itself may fail too.
TEST_F(EndOnDeviceFailureDeathTest, ReportsOnlyTheFirstFailure) {
  const auto fail = [] {
    SetDeviceFailureHandler([](const std::string& what) {
      std::fprintf(stderr, "told: %s\n", what.c_str());
      std::thread([] { EndOnDeviceFailure("second"); }).join();
    });
    EndOnDeviceFailure("first");
  };
  EXPECT_DEATH(fail(), "^first\ntold: first\nsecond\n$");
}

}  // namespace
}  // namespace foretoken::kernels
