// SPDX-License-Identifier: Apache-2.0
// What shells and scripts do to `foretoken`. If this test fails, a script takes a failure for success, or a user reads
// lines of a library in place of an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "tests/client/commands/run_foretoken.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace foretoken::client {
namespace {

using testing::FakeGenerationService;
using ::testing::HasSubstr;
using ::testing::Not;

// A script would otherwise take a full disk for success.
TEST(ForetokenInAShell, OutputThatIsLostIsAnError) {
  const FakeGenerationService service;
  for (const auto& [command, argument] : {std::pair("info", ""), {"generate", "abc"}, {"tokenize", "abc"}}) {
    const Outcome outcome = RunAgainst(service, command, absl::StrCat(argument, " 2>&1 >/dev/full"));
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_THAT(outcome.out, HasSubstr("foretoken: cannot write to standard output"));
  }
  EXPECT_EQ(RunShell("--version 2>/dev/null >/dev/full").exit_code, 1);
}

TEST(ForetokenInAShell, AnEmptyConstraintOrProtectionIsRefused) {
  for (const std::string flag :
       {"--regex=", "--json_schema ''", "--allowed_token_ids=", "--banned_token_ids=", "--numerics_fingerprint=",
        "--tenant=", "--tls_ca=", "--tls_certificate=", "--tls_key ''", "--token_file="}) {
    const Outcome outcome = RunShell("generate --target=localhost:1 " + flag + " 2>&1");
    EXPECT_EQ(outcome.exit_code, 1) << flag;
    EXPECT_THAT(outcome.out, HasSubstr("expected a value, got none"));
  }
}

TEST(ForetokenInAShell, APortThatIsNoneIsRefused) {
  for (const std::string target : {"localhost:116507", "localhost:0", "https://localhost:65536"}) {
    const Outcome outcome = RunShell("info --target=" + target + " 2>&1");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.out, HasSubstr("--target: expected HOST:PORT with a port of 1 to 65535, got \"" + target));
  }
}

TEST(ForetokenInAShell, AFileWithoutAnEndIsRefused) {
  const Outcome outcome = RunShell("generate --target=localhost:1 --prompt_file=/dev/zero 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("--prompt_file: /dev/zero: expected at most 67108864 bytes, got more"));
}

TEST(ForetokenInAShell, InputThatCannotBeReadIsNoPrompt) {
  const testing::TempDir dir;
  const Outcome outcome = RunShell(absl::StrCat("generate --target=localhost:1 2>&1 <", dir.path()));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("--prompt_file: cannot read - to its end"));
}

// The files are looked at every ten seconds.
TEST(ForetokenInAShell, ALogLineIsNoOutput) {
  const testing::TempDir dir;
  const std::string authority = dir.Write("ca", testing::TestAuthority().certificate());
  const std::string errors = dir.path() + "/errors";
  const Outcome outcome = RunShell(absl::StrCat("info --target=127.0.0.1:1 --connect_timeout=12s --tls_ca=", authority,
                                                " 2>", errors, " & pid=$!; ", "until grep -qs connecting ", errors,
                                                "; do sleep 0.01; done; echo x >", authority, "; wait $pid"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(base::ReadFile(errors).value(), HasSubstr("the former TLS files stay in use"));
}

TEST(ForetokenInAShell, LibrariesSayNothing) {
  const FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "generate", "\"$(printf '\\377')\" 2>&1");
  EXPECT_THAT(outcome.out, Not(HasSubstr("libprotobuf")));
}

TEST(ForetokenInAShell, ATimeThatIsNoneIsRefused) {
  EXPECT_THAT(RunShell("simulate --max_first_token=-1s profile 2>&1").out,
              HasSubstr("--max_first_token: expected more than 0, got -1s"));
}

}  // namespace
}  // namespace foretoken::client
