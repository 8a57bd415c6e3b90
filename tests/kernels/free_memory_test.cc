// SPDX-License-Identifier: Apache-2.0
// The memory that is left. If this test fails, a proposer in a container loads a model that its memory does not hold,
// and the system ends it.
#include "kernels/free_memory.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::kernels {
namespace {

class FreeMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = directory_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<int64_t> Free() const { return FreeMemory(directory_.path()); }

  testing::TempDir directory_;
};

TEST_F(FreeMemoryTest, IsTheMachinesWhereNoGroupHasALimit) {
  EXPECT_EQ(Free(), std::nullopt) << "the machine does not show it";
  Write("/proc/meminfo", "MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:       5 kB\n");
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.current", "77\n");
  EXPECT_EQ(Free(), 5 * 1024);
}

TEST_F(FreeMemoryTest, IsTheLeastThatTheGroupsAroundAProcessLeave) {
  Write("/proc/meminfo", "MemAvailable: 500 kB\n");
  Write("/proc/self/cgroup", "0::/pod/server\n");
  Write("/sys/fs/cgroup/pod/memory.max", "9000\n");
  Write("/sys/fs/cgroup/pod/memory.current", "8000\n");
  EXPECT_EQ(Free(), 1000);
  Write("/sys/fs/cgroup/pod/server/memory.max", "4000\n");
  Write("/sys/fs/cgroup/pod/server/memory.current", "5000\n");
  EXPECT_EQ(Free(), 0);
}

TEST_F(FreeMemoryTest, CountsTheMemoryOfFilesAsFree) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "9000\n");
  Write("/sys/fs/cgroup/memory.current", "8000\n");
  Write("/sys/fs/cgroup/memory.stat", "anon 5000\nfile 3000\ninactive_file 2000\nactive_file 500\n");
  EXPECT_EQ(Free(), 3500);
}

TEST_F(FreeMemoryTest, TheWholeIsWhatTheMachineAndTheGroupsHaveWithWhatCanBeSwappedOut) {
  const auto whole = [&] { return WholeMemory(directory_.path()); };
  EXPECT_EQ(whole(), std::nullopt);
  Write("/proc/meminfo", "MemTotal:  9 kB\nMemAvailable:       5 kB\nSwapTotal: 2 kB\n");
  EXPECT_EQ(whole(), 11 * 1024);
  Write("/proc/self/cgroup", "0::/pod/server\n");
  Write("/sys/fs/cgroup/pod/memory.max", "max\n");
  EXPECT_EQ(whole(), 11 * 1024);
  Write("/sys/fs/cgroup/pod/server/memory.max", "4000\n");
  Write("/sys/fs/cgroup/pod/server/memory.current", "3999\n");
  EXPECT_EQ(whole(), 4000 + 2048);
  Write("/sys/fs/cgroup/pod/server/memory.swap.max", "100\n");
  EXPECT_EQ(whole(), 4100);
}

}  // namespace
}  // namespace foretoken::kernels
