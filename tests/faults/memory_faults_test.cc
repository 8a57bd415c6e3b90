// SPDX-License-Identifier: Apache-2.0
// Too little memory. If this test fails, a service without enough memory crashes instead of naming what is missing, or
// a small K/V cache changes a client's tokens.
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
  EXPECT_THAT(base::ReadFile(directory.path() + "/log").value_or(""), HasSubstr("of which K/V takes 4000 MiB"));
}

}  // namespace
}  // namespace foretoken
