// SPDX-License-Identifier: Apache-2.0
// The quota of a container. If this test fails, a container with a limit of few cores on a large machine computes with
// as many threads as the machine has cores, and the kernel stops them most of the time.
#include "kernels/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/temp_dir.h"

namespace foretoken::kernels {
namespace {

class CpuQuotaTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> Quota() const { return CpuQuota(directory_.path()); }

  testing::TempDir directory_;
};

TEST_F(CpuQuotaTest, AContainerSeesItsOwnGroupAsTheRoot) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(Quota(), 2.5);
}

TEST_F(CpuQuotaTest, TheSmallestOfTheGroupsAroundAProcessCounts) {
  Write("/proc/self/cgroup", "12:cpu:/old\n0::/pods.slice/pod/server\n");
  Write("/sys/fs/cgroup/pods.slice/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/pods.slice/pod/cpu.max", "200000 50000\n");
  Write("/sys/fs/cgroup/pods.slice/pod/server/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/old/cpu.max", "100000 100000\n");
  EXPECT_EQ(Quota(), 4);
}

TEST_F(CpuQuotaTest, WithoutALimitThereIsNone) {
  EXPECT_EQ(Quota(), std::nullopt) << "the machine shows no groups";
  Write("/proc/self/cgroup", "0::/a\n");
  EXPECT_EQ(Quota(), std::nullopt);
  for (const char* const text : {"max 100000\n", "", "0 100000\n", "-1 100000\n", "100000", "100000 0"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(Quota(), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace foretoken::kernels
