// SPDX-License-Identifier: Apache-2.0
// Too little memory. If this test fails, a service without enough memory crashes instead of naming what is missing, a
// call waits forever for a verifier that found none, or a small K/V cache or a machine that takes memory back changes a
// client's tokens.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/child_process.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

TEST(SmallKvCache, PreemptsAndChangesNoToken) {
  ServiceProcess proposer("foretoken_proposer", {});
  // 4 MiB hold 1,024 tokens, and a request has about 400.
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address(), "--kv_cache_mb=4"});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 8});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &proposer});
  EXPECT_TRUE(WaitUntil([&] { return verifier.Metric("foretoken_preemptions_total") > 0; }));
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

TEST(SmallKvCache, RefusesByNameWhatItCanNeverHold) {
  ServiceProcess verifier("foretoken_verifier", {"--kv_cache_mb=1"});  // 256 tokens
  client::GenerationClient client = Connect(verifier);
  v1::GenerateRequest request = RepetitiveRequest(0);
  for (int i = 0; i < 3; ++i) request.set_text(request.text() + request.text());
  const absl::Status status = client.Generate(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("expected a prompt of at most 255 tokens"));
}

TEST(TooLittleMemory, IsNamedAtTheStart) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer needs more address space than the test allows";
  const testing::TempDir directory;
  testing::ChildProcess verifier(
      {"/bin/sh", "-c", "ulimit -v 1500000; exec \"$@\"", "sh",
       std::string(FORETOKEN_BINARY_DIR) + "/foretoken_verifier",
       "--model=" + testing::SourcePath("deploy/demo/target"), "--listen=127.0.0.1:0", "--kv_cache_mb=4000"},
      directory.path() + "/log");
  EXPECT_EQ(verifier.Wait(), 1);
  const std::string log = base::ReadFile(directory.path() + "/log").value_or("");
  EXPECT_THAT(log, HasSubstr("of which K/V takes 4000 MiB"));
  EXPECT_THAT(log, HasSubstr("(ulimit -v). Lower --kv_cache_mb"));
}

// Takes from a process what the kernel takes when the machine runs short: its pages of files, such as the program's,
// and with swap also the others. Returns how many bytes it had in memory less afterwards, or nothing without the right
// to.
std::optional<int64_t> PageOut(const testing::ChildProcess& process) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid(), 0));
  if (fd < 0) return std::nullopt;
  const int64_t num_bytes_before = process.MemoryBytes();
  bool is_permitted = false;
  std::ifstream maps(absl::StrCat("/proc/", process.pid(), "/maps"));
  for (std::string line; std::getline(maps, line);) {
    size_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) != 2) continue;
    const iovec range = {.iov_base = reinterpret_cast<void*>(begin), .iov_len = end - begin};
    is_permitted |= syscall(SYS_process_madvise, fd, &range, 1, MADV_PAGEOUT, 0) > 0;
  }
  close(fd);
  if (!is_permitted) return std::nullopt;
  return num_bytes_before - process.MemoryBytes();
}

TEST(MemoryPressure, OnRunningServicesChangesNoToken) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address()});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 4});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &proposer});
  int64_t most_taken = 0;
  for (int i = 0; i < 10; ++i) {
    for (const ServiceProcess* service : {&verifier, &proposer}) {
      const std::optional<int64_t> num_bytes = PageOut(service->process());
      if (!num_bytes) GTEST_SKIP() << "the kernel lets this user take no memory from a process";
      most_taken = std::max(most_taken, *num_bytes);
    }
    EXPECT_TRUE(load.Continues());
  }
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
  if (most_taken < 1 << 20) GTEST_SKIP() << "the kernel took nothing: other processes have the same pages";
}

TEST(MemoryPressure, AVerifierThatFindsNoneEndsAndItsCallsAreTold) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer needs more address space than the test allows";
  ServiceProcess verifier("foretoken_verifier", {});
  client::GenerationClient client = Connect(verifier);
  {
    StreamLoad load(client, {.num_streams = 4});
    ASSERT_TRUE(load.Continues());
    const rlimit none = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};  // any growth is more
    ASSERT_EQ(prlimit(verifier.process().pid(), RLIMIT_AS, &none, nullptr), 0);
    v1::TokenizeRequest request;
    request.set_text(std::string(3 << 20, 'x'));  // more than the allocator has in reserve
    EXPECT_TRUE(WaitUntil([&] { return absl::IsUnavailable(client.Tokenize(request).status()); }));
    load.Finish();
    EXPECT_EQ(load.errors().size(), 4) << "one for each running call";
    for (const std::string& error : load.errors()) EXPECT_TRUE(absl::StartsWith(error, "UNAVAILABLE")) << error;
  }
  verifier.Restart();
  EXPECT_TRUE(WaitUntil([&] { return client.GetModelInfo().ok(); }));
  StreamLoad load(client, {.num_streams = 4});
  EXPECT_TRUE(load.Continues()) << "with the next verifier";
  load.ExpectTheTokensOfNoSpeculation();
}

}  // namespace
}  // namespace foretoken
