// SPDX-License-Identifier: Apache-2.0
// Bearer tokens. If this test fails, a stranger gets in, a client with a good token does not, or a revoked token stays
// good.
#include "verifier_service/api/client_tokens.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef", kOther[] = "fedcba9876543210";

class ClientTokensTest : public ::testing::Test {
 protected:
  // Replaces the file by another one, as Kubernetes does.
  void Write(const std::string& contents) {
    const std::string path = absl::StrCat(directory_.path(), "/", ++num_files_);
    std::ofstream(path) << contents;
    ASSERT_EQ(std::rename(path.c_str(), path_.c_str()), 0);
  }
  // Rewrites the file in place.
  void Rewrite(const std::string& contents) { std::ofstream(path_) << contents; }
  std::unique_ptr<ClientTokens> Load() { return ClientTokens::Load(path_).value(); }
  static bool LetsIn(const ClientTokens& tokens, const std::string& token) {
    return tokens.Check(absl::StrCat("Bearer ", token)).ok();
  }

  const testing::TempDir directory_;
  const std::string path_ = directory_.path() + "/tokens";
  int num_files_ = 0;
};

TEST_F(ClientTokensTest, LetsInTheTokensOfTheFileAlone) {
  Write(absl::StrCat("# clients\n\n", kToken, "\r\n  ", kOther, "  \n"));
  const auto tokens = Load();
  EXPECT_TRUE(tokens->Check(absl::StrCat("Bearer ", kToken)).ok());
  EXPECT_TRUE(tokens->Check(absl::StrCat("bearer  ", kOther)).ok());
  for (const std::string& bad :
       {std::string(), std::string("Bearer "), std::string(kToken), absl::StrCat("Basic ", kToken),
        absl::StrCat("Bearer ", kToken, "x"), absl::StrCat("Bearer ", std::string(kToken, 15)),
        absl::StrCat("Bearer # clients"), absl::StrCat("Bearer ", std::string(100'000, 'x'))}) {
    EXPECT_EQ(tokens->Check(bad).code(), absl::StatusCode::kUnauthenticated) << bad.substr(0, 40);
  }
}

TEST_F(ClientTokensTest, AMarkOfUtf8IsNoPartOfTheFirstToken) {
  Write(absl::StrCat("\xEF\xBB\xBF", kToken, "\n"));
  EXPECT_TRUE(LetsIn(*Load(), kToken));
}

TEST_F(ClientTokensTest, APipeIsNoFileAndNobodyWaitsForItsWriter) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ClientTokens::Load(path_).status().message(), HasSubstr("not a regular file"));
}

TEST_F(ClientTokensTest, AChangedFileCountsAtTheSecondLook) {
  Write(kToken);
  const auto tokens = Load();
  tokens->Look();
  Write(kOther);
  tokens->Look();
  EXPECT_TRUE(LetsIn(*tokens, kToken));
  tokens->Look();
  EXPECT_FALSE(LetsIn(*tokens, kToken));
  EXPECT_TRUE(LetsIn(*tokens, kOther));
}

// A program truncates the file and writes it in pieces, and each look comes at the worst time.
TEST_F(ClientTokensTest, AFileThatIsRewrittenInPlaceCountsWhenItIsComplete) {
  Write(kToken);
  const auto tokens = Load();
  const std::string added(64, 'a'), half = added.substr(0, 32);
  for (const std::string& piece : {std::string(), half, absl::StrCat(added, "\n")}) {
    Rewrite(piece);
    tokens->Look();
    EXPECT_TRUE(LetsIn(*tokens, kToken)) << piece;
    EXPECT_FALSE(LetsIn(*tokens, half)) << piece;
  }
  tokens->Look();
  EXPECT_FALSE(LetsIn(*tokens, kToken));
  EXPECT_TRUE(LetsIn(*tokens, added));
}

// Some tools give a file its former time back.
TEST_F(ClientTokensTest, AFileOfTheSameSizeAndTimeHasChangedToo) {
  Write(kToken);
  const auto tokens = Load();
  const auto time = std::filesystem::last_write_time(path_);
  absl::SleepFor(absl::Milliseconds(20));  // more than a tick of the file system's clock
  Rewrite(kOther);
  std::filesystem::last_write_time(path_, time);
  tokens->Look();
  tokens->Look();
  EXPECT_FALSE(LetsIn(*tokens, kToken));
  EXPECT_TRUE(LetsIn(*tokens, kOther));
}

TEST_F(ClientTokensTest, AFileThatVanishesOrIsEmptyLeavesTheLastTokensAndCommentsAloneLeaveNone) {
  Write(kToken);
  const auto tokens = Load();
  const auto look_twice = [&] {
    tokens->Look();
    tokens->Look();
  };
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  look_twice();
  EXPECT_TRUE(LetsIn(*tokens, kToken));
  Write("");
  look_twice();
  EXPECT_TRUE(LetsIn(*tokens, kToken));
  Write("# nobody\n");
  look_twice();
  EXPECT_FALSE(LetsIn(*tokens, kToken));
}

// A client that opens many connections takes descriptors, and would keep its own token in force.
TEST_F(ClientTokensTest, AFileThatCannotBeOpenedForATimeIsReadLater) {
  Write(kOther);
  const auto tokens = Load();
  const testing::CapturedLog log;
  Write(kToken);
  for (int i = 0; i < 2; ++i) tokens->Look();  // UBSan looks at a logger once, and needs a descriptor for it
  Write(kOther);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 4; ++i) tokens->Look();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(LetsIn(*tokens, kToken));
  EXPECT_THAT(log.Lines(),
              ElementsAre(HasSubstr("read again"), HasSubstr("Too many open files; the last tokens stay in force")));
  tokens->Look();
  EXPECT_FALSE(LetsIn(*tokens, kToken));
  EXPECT_TRUE(LetsIn(*tokens, kOther));
}

TEST_F(ClientTokensTest, FilesAndTokensHaveBounds) {
  Write(std::string(4096, 'x'));
  EXPECT_TRUE(Load()->Check(absl::StrCat("Bearer ", std::string(4096, 'x'))).ok());
  Write(std::string(4097, 'x'));
  EXPECT_THAT(ClientTokens::Load(path_).status().message(), HasSubstr("expected 16 to 4096 bytes, got 4097"));
  const std::string rest((size_t{1} << 20) - sizeof(kToken), '\n');
  Write(absl::StrCat(kToken, "\n", rest));
  EXPECT_TRUE(Load()->Check(absl::StrCat("Bearer ", kToken)).ok());
  Write(absl::StrCat(kToken, "\n\n", rest));
  EXPECT_THAT(ClientTokens::Load(path_).status().message(), HasSubstr("more than 1048576 bytes"));
}

TEST_F(ClientTokensTest, RefusesAFileWithoutATokenOrWithAWeakOneAndDoesNotShowIt) {
  EXPECT_THAT(ClientTokens::Load(path_).status().message(), HasSubstr(path_));
  Write("# none\n");
  EXPECT_EQ(ClientTokens::Load(path_).status().code(), absl::StatusCode::kInvalidArgument);
  Write(absl::StrCat(kToken, "\nsecret\n"));
  const absl::Status weak = ClientTokens::Load(path_).status();
  EXPECT_THAT(weak.message(), HasSubstr("line 2"));
  EXPECT_THAT(weak.message(), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace foretoken::verifier
