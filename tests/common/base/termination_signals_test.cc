// SPDX-License-Identifier: Apache-2.0
// If this test fails, a service that loads a model ignores SIGTERM, or a drain cannot be cut short.
#include "common/base/termination_signals.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

namespace foretoken::base {
namespace {

// Each of these functions ends its process, with the exit code 0 if no signal ends it.

void GetSignalsWhileServing(int first, int second) {
  BlockTerminationSignals();
  kill(getpid(), first);
  if (AwaitTerminationSignal() != first) _exit(1);
  kill(getpid(), second);
  _exit(0);
}

void GetSignalWhileLoading(int signal) {
  BlockTerminationSignals();
  const EndOnSignal loading;
  kill(getpid(), signal);
  sleep(60);
  _exit(0);
}

void GetSignalBetweenLoadingAndServing() {
  BlockTerminationSignals();
  std::optional<EndOnSignal> loading(std::in_place);
  loading.reset();
  kill(getpid(), SIGTERM);
  _exit(AwaitTerminationSignal() == SIGTERM ? 0 : 1);
}

TEST(EndOnSignalDeathTest, EndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(GetSignalWhileLoading(SIGTERM), ::testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(GetSignalWhileLoading(SIGINT), ::testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(EndOnSignalDeathTest, LeavesALaterSignalForTheDrain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(GetSignalBetweenLoadingAndServing(), ::testing::ExitedWithCode(0), "");
}

TEST(AwaitTerminationSignalDeathTest, AFurtherSignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(GetSignalsWhileServing(SIGINT, SIGTERM), ::testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(GetSignalsWhileServing(SIGTERM, SIGINT), ::testing::ExitedWithCode(128 + SIGINT), "");
}

// The kernel protects process 1 of a container from signals without a handler.
TEST(AwaitTerminationSignal, AFurtherSignalEndsTheFirstProcessOfAContainerToo) {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
  if (child < 0) GTEST_SKIP() << "this user may not make a namespace";
  if (child == 0) GetSignalsWhileServing(SIGINT, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

}  // namespace
}  // namespace foretoken::base
