// SPDX-License-Identifier: Apache-2.0
// TLS and tokens between the three processes. If this test fails, a stranger can use a server, or a server with renewed
// certificates drops calls.
#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using testing::MountedCertificate;
using testing::TestAuthority;

constexpr char kToken[] = "0123456789abcdef";

std::vector<std::string> ServerFlags(const MountedCertificate& mounted) {
  return {"--tls_certificate=" + mounted.certificate(), "--tls_key=" + mounted.key(), "--tls_client_ca=" + mounted.ca(),
          "--tls_refresh=1s"};
}

std::vector<std::string> With(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string FileWith(const std::string& path, const std::string& contents) {
  std::ofstream(path) << contents;
  return path;
}

// A proposer that only this verifier may use, and a verifier that asks its clients for a certificate and a token.
class Security : public ::testing::Test {
 protected:
  client::ConnectOptions Options(const MountedCertificate& mounted, const std::string& token = kToken) const {
    client::ConnectOptions options = {.target = verifier_.address(), .connect_timeout_ms = 3000};
    options.metadata = {{"authorization", absl::StrCat("Bearer ", token)}};
    options.tls = {
        .certificate = mounted.certificate(), .key = mounted.key(), .ca = mounted.ca(), .refresh = absl::Seconds(1)};
    return options;
  }
  static absl::Status Generate(client::GenerationClient& client) {
    v1::GenerateRequest request;
    request.set_text("def f():");
    request.mutable_stopping()->set_max_tokens(4);
    return client.Generate(request).status();
  }

  // Renews all certificates again and again under load.
  void ExpectThatRenewalsFailNoCall(int num_renewals);

  const TestAuthority authority_;
  MountedCertificate proposer_files_{authority_, {.names = {"URI:spiffe://c/proposer"}}};
  MountedCertificate verifier_files_{authority_, {.names = {"IP:127.0.0.1", "URI:spiffe://c/verifier"}}};
  MountedCertificate client_files_{authority_, {.names = {"URI:spiffe://c/client"}}};
  const testing::TempDir directory_;
  const std::string token_file_ = FileWith(directory_.path() + "/tokens", kToken);
  ServiceProcess proposer_{
      "foretoken_proposer",
      With(ServerFlags(proposer_files_), {"--method=ngram", "--tls_client_identities=spiffe://c/verifier"})};
  ServiceProcess verifier_{
      "foretoken_verifier",
      With(ServerFlags(verifier_files_),
           {"--token_file=" + token_file_, "--proposer=ngram=static:" + proposer_.address(),
            "--proposer_tls_certificate=" + verifier_files_.certificate(),
            "--proposer_tls_key=" + verifier_files_.key(), "--proposer_tls_ca=" + verifier_files_.ca(),
            "--proposer_tls_identities=spiffe://c/proposer", "--health_listen=127.0.0.1:0"})};
};

void Security::ExpectThatRenewalsFailNoCall(int num_renewals) {
  std::atomic<bool> is_over = false;
  std::atomic<int> num_ok = 0, num_failed = 0;
  std::thread load([&] {
    while (!is_over) {
      auto client = client::GenerationClient::Connect(Options(client_files_));
      const absl::Status status = client.ok() ? Generate(*client) : client.status();
      ++(status.ok() ? num_ok : num_failed);
      if (!status.ok()) ADD_FAILURE() << status;
    }
  });
  for (int i = 0; i < num_renewals; ++i) {
    verifier_files_.Renew(authority_, {.names = {"IP:127.0.0.1", "URI:spiffe://c/verifier"}});
    client_files_.Renew(authority_, {.names = {"URI:spiffe://c/client"}});
    proposer_files_.Renew(authority_, {.names = {"URI:spiffe://c/proposer"}});
    absl::SleepFor(absl::Milliseconds(1200));  // the services look every second
    const int num_before = num_ok;
    const absl::Time give_up = SteadyNow() + absl::Seconds(60);
    while (num_ok < num_before + 2 && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(10));
  }
  is_over = true;
  load.join();
  std::printf("%d renewals: %d calls served, %d failed\n", num_renewals, num_ok.load(), num_failed.load());
  EXPECT_EQ(num_failed, 0);
  EXPECT_GE(num_ok, 2 * num_renewals);
}

TEST_F(Security, AClientWithCertificateAndTokenIsServedAndTheProposerHelps) {
  client::GenerationClient client = client::GenerationClient::Connect(Options(client_files_)).value();
  EXPECT_TRUE(Generate(client).ok());
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (NumConnected(client) == 0 && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(NumConnected(client), 1);
}

TEST_F(Security, ARewrittenTokenFileLetsInOthers) {
  const std::string other = "fedcba9876543210";
  client::GenerationClient client = client::GenerationClient::Connect(Options(client_files_)).value();
  client::GenerationClient other_client = client::GenerationClient::Connect(Options(client_files_, other)).value();
  EXPECT_TRUE(Generate(client).ok());
  EXPECT_EQ(Generate(other_client).code(), absl::StatusCode::kUnauthenticated);
  FileWith(token_file_, other);
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (!Generate(other_client).ok() && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_TRUE(Generate(other_client).ok());
  EXPECT_EQ(Generate(client).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(Security, AStrangerGetsNowhere) {
  const auto connect = [](client::ConnectOptions options) {
    return client::GenerationClient::Connect(options).status().code();
  };
  client::ConnectOptions plain = {.target = verifier_.address(), .connect_timeout_ms = 1000};
  EXPECT_EQ(connect(plain), absl::StatusCode::kUnavailable);
  const TestAuthority other;
  const MountedCertificate stranger(other, {});
  client::ConnectOptions options = Options(stranger);
  options.tls.ca = client_files_.ca();
  options.connect_timeout_ms = 1000;
  if (auto client = client::GenerationClient::Connect(options); client.ok()) {  // TLS 1.3 shows the refusal later
    EXPECT_FALSE(Generate(*client).ok());
  }
  client::GenerationClient guest =
      client::GenerationClient::Connect(Options(client_files_, "not the token!!!")).value();
  EXPECT_EQ(Generate(guest).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(guest.GetModelInfo().status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(guest.Abort("x").status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(guest.Tokenize({}).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(guest.Detokenize({}).status().code(), absl::StatusCode::kUnauthenticated);
  // The client's certificate is good, but only the verifier may use the proposer.
  options = Options(client_files_);
  options.target = proposer_.address();
  options.connect_timeout_ms = 1000;
  if (auto client = client::GenerationClient::Connect(options); client.ok()) {
    EXPECT_EQ(client->GetModelInfo().status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(Security, RenewedCertificatesFailNoCall) { ExpectThatRenewalsFailNoCall(5); }

class SecurityLong : public Security {};

TEST_F(SecurityLong, TwentyRenewalsFailNoCall) { ExpectThatRenewalsFailNoCall(20); }

TEST_F(Security, ANewAuthorityIsTakenWithoutARestart) {
  const TestAuthority next;
  verifier_files_.Renew(next, {.names = {"IP:127.0.0.1", "URI:spiffe://c/verifier"}});
  const MountedCertificate client_files(next, {});
  const absl::Time give_up = SteadyNow() + absl::Seconds(60);
  absl::Status status = absl::UnknownError("not tried");
  while (!status.ok() && SteadyNow() < give_up) {
    auto client = client::GenerationClient::Connect(Options(client_files));
    status = client.ok() ? Generate(*client) : client.status();
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST(PlainText, IsServedToOtherMachinesOnlyOnRequest) {
  for (const std::string& binary : {std::string("foretoken_proposer"), std::string("foretoken_verifier")}) {
    const testing::TempDir directory;
    std::vector<std::string> command = {absl::StrCat(FORETOKEN_BINARY_DIR, "/", binary), "--listen=0.0.0.0:0"};
    if (binary == "foretoken_verifier") command.push_back("--model=" + testing::SourcePath("deploy/demo/target"));
    testing::ChildProcess refused(command, directory.path() + "/log");
    EXPECT_EQ(refused.Wait(), 1);
    EXPECT_THAT(base::ReadFile(directory.path() + "/log").value_or(""), HasSubstr("--insecure"));
    command.push_back("--insecure");
    testing::ChildProcess served(command, directory.path() + "/log");
    EXPECT_TRUE(served.WaitForPort().has_value());
  }
}

}  // namespace
}  // namespace foretoken
