// SPDX-License-Identifier: Apache-2.0
// A disk without room for a suffix proposer's snapshot. If this test fails, a full disk ends the proposer, destroys the
// last good snapshot, or is not named in the log.
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

struct SmallDisk {
  std::string name;
  std::vector<std::string> launcher;  // the last argument is the directory
  std::string reason;
};

void PrintTo(const SmallDisk& disk, std::ostream* out) { *out << disk.name; }

class FullDisk : public ::testing::TestWithParam<SmallDisk> {};

TEST_P(FullDisk, IsNamedAndChangesNothingElse) {
  const bool mounts = GetParam().name == "FileSystem";
  if (mounts && std::system("unshare --mount true 2>/dev/null") != 0) GTEST_SKIP() << "this user may not mount";
  const testing::TempDir directory;
  std::vector<std::string> launcher = GetParam().launcher;
  launcher.push_back(directory.path());
  ServiceProcess proposer(
      "foretoken_proposer",
      {"--method=suffix", "--suffix_snapshot=" + directory.path() + "/outputs", "--suffix_snapshot_interval=200ms"}, {},
      launcher);
  ServiceProcess verifier("foretoken_verifier", {"--proposer=suffix=static:" + proposer.address()});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 2});
  EXPECT_TRUE(load.AcceptsMore());
  EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_suffix_snapshot_bytes") > 0; }))
      << "the test proves nothing: no snapshot fits";
  const QuietLevels levels({&verifier, &proposer});
  EXPECT_TRUE(WaitUntil([&] { return proposer.Log().find("suffix snapshot not written") != std::string::npos; }));
  EXPECT_THAT(proposer.Log(), HasSubstr(GetParam().reason));
  EXPECT_TRUE(load.AcceptsMore()) << "without room";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();

  // The last good file is still there, and nothing unfinished beside it.
  const double num_bytes = proposer.Metric("foretoken_suffix_snapshot_bytes");
  const std::string folder = "/proc/" + std::to_string(proposer.process().pid()) + "/root" + directory.path();
  EXPECT_EQ(static_cast<double>(std::filesystem::file_size(folder + "/outputs")), num_bytes);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("outputs", "outputs.lock"));
  }
}

// The signal of a file that grows too large would end the process; without it the write fails, as on a full disk.
INSTANTIATE_TEST_SUITE_P(
    Kinds, FullDisk,
    ::testing::Values(SmallDisk{"FileSizeLimit",
                                {"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 32; shift; exec \"$@\"", "sh"},
                                "File too large"},
                      SmallDisk{"FileSystem",
                                {"unshare", "--mount", "/bin/sh", "-c",
                                 "mount -t tmpfs -o size=32k none \"$1\" && shift && exec \"$@\"", "sh"},
                                "No space left on device"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken
