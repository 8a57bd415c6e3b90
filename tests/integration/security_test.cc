// SPDX-License-Identifier: Apache-2.0
// TLS and tokens between the three processes. If this test fails, a stranger can use a server, or a server with renewed
// certificates drops calls.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/rpc/status.h"
#include "common/rpc/tls.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/tcp_relay.h"
#include "tests/testing/health.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using testing::MountedCertificate;
using testing::TestAuthority;

constexpr char kToken[] = "0123456789abcdef";
const testing::CertificateRequest kOfVerifier = {.names = {"IP:127.0.0.1", "URI:spiffe://c/verifier"}},
                                  kOfProposer = {.names = {"URI:spiffe://c/proposer"}},
                                  kOfClient = {.names = {"URI:spiffe://c/client"}};

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

// Clients that call again and again until the end. Each call must succeed.
class Callers {
 public:
  Callers(int num_callers, const std::function<absl::Status()>& call) {
    for (int i = 0; i < num_callers; ++i) {
      threads_.emplace_back([this, call] {
        while (!is_over_) {
          if (const absl::Status status = call(); !status.ok()) ADD_FAILURE() << status;
          ++num_calls_;
        }
      });
    }
  }
  ~Callers() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    std::printf("%d calls\n", num_calls_.load());
  }
  // Returns when each client has made a call on average.
  void AwaitCalls() const {
    EXPECT_TRUE(
        WaitUntil([&, enough = num_calls_ + static_cast<int>(threads_.size())] { return num_calls_ >= enough; }));
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::atomic<int> num_calls_ = 0;
  std::vector<std::thread> threads_;
};

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
  static v1::GenerateRequest ShortRequest() {
    v1::GenerateRequest request;
    request.set_text("def f():");
    request.mutable_stopping()->set_max_tokens(4);
    return request;
  }
  static absl::Status Generate(client::GenerationClient& client) { return client.Generate(ShortRequest()).status(); }
  // On a connection of its own, with the certificate as it is now. A handshake that fails fails the call.
  absl::Status GenerateAnew(const MountedCertificate& mounted) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto credentials = rpc::ChannelCredentials(Options(mounted).tls, /*is_secure=*/true).value();
    const auto stub =
        v1::GenerationService::NewStub(grpc::CreateCustomChannel(verifier_.address(), credentials, arguments));
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", kToken));
    const auto reader = stub->Generate(&context, ShortRequest());
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    return rpc::FromGrpc(reader->Finish());
  }

  // Returns when the service shows its newest certificate to new connections.
  static void AwaitRenewal(const ServiceProcess& service, const MountedCertificate& mounted) {
    EXPECT_TRUE(WaitUntil(
        [&] { return testing::ShownCertificate(service.address()) == base::ReadFile(mounted.certificate()).value(); }));
  }
  bool ProposerConnects() const {
    return WaitUntil([&] { return verifier_.Metric("foretoken_proposer_replicas_connected") == 1; });
  }
  // Renews all certificates, and cuts the verifier's connection to the proposer, so that it needs the new ones.
  void RenewAll(const TestAuthority& authority, const std::vector<const TestAuthority*>& trusted) {
    verifier_files_.Renew(authority, kOfVerifier, trusted);
    client_files_.Renew(authority, kOfClient, trusted);
    proposer_files_.Renew(authority, kOfProposer, trusted);
    AwaitRenewal(verifier_, verifier_files_);
    AwaitRenewal(proposer_, proposer_files_);
    const double num_connects = verifier_.Metric("foretoken_proposer_connects_total");
    relay_.Cut();
    EXPECT_TRUE(WaitUntil([&] { return verifier_.Metric("foretoken_proposer_connects_total") > num_connects; }));
    EXPECT_TRUE(ProposerConnects());
  }
  void ExpectThatRenewalsFailNoCall(int num_renewals) {
    const Callers callers(kNumCallers, [this] { return GenerateAnew(client_files_); });
    for (int i = 0; i < num_renewals; ++i) {
      RenewAll(authority_, {&authority_});
      callers.AwaitCalls();
    }
  }

  static constexpr int kNumCallers = 8;
  const TestAuthority authority_;
  MountedCertificate proposer_files_{authority_, kOfProposer};
  MountedCertificate verifier_files_{authority_, kOfVerifier};
  MountedCertificate client_files_{authority_, kOfClient};
  const testing::TempDir directory_;
  const std::string token_file_ = FileWith(directory_.path() + "/tokens", kToken);
  ServiceProcess proposer_{
      "foretoken_proposer",
      With(ServerFlags(proposer_files_), {"--method=ngram", "--tls_client_identities=spiffe://c/verifier"})};
  testing::TcpRelay relay_{proposer_.address()};
  ServiceProcess verifier_{
      "foretoken_verifier",
      With(ServerFlags(verifier_files_),
           {"--token_file=" + token_file_, "--proposer=ngram=static:" + relay_.address(),
            "--proposer_tls_certificate=" + verifier_files_.certificate(),
            "--proposer_tls_key=" + verifier_files_.key(), "--proposer_tls_ca=" + verifier_files_.ca(),
            "--proposer_tls_identities=spiffe://c/proposer", "--health_listen=127.0.0.1:0"})};
};

TEST_F(Security, AClientWithCertificateAndTokenIsServedAndTheProposerHelps) {
  client::GenerationClient client = client::GenerationClient::Connect(Options(client_files_)).value();
  EXPECT_TRUE(Generate(client).ok());
  EXPECT_TRUE(ProposerConnects());
}

TEST_F(Security, ARewrittenTokenFileLetsInOthers) {
  const std::string other = "fedcba9876543210";
  client::GenerationClient client = client::GenerationClient::Connect(Options(client_files_)).value();
  client::GenerationClient other_client = client::GenerationClient::Connect(Options(client_files_, other)).value();
  EXPECT_TRUE(Generate(client).ok());
  EXPECT_EQ(Generate(other_client).code(), absl::StatusCode::kUnauthenticated);
  FileWith(token_file_, other);
  EXPECT_TRUE(WaitUntil([&] { return Generate(other_client).ok(); }));
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

// As an operator does it: everybody trusts both authorities before the first certificate of the new one is issued, and
// until the last of the old one is gone.
TEST_F(Security, AnotherAuthorityTakesOverAndFailsNoCall) {
  const TestAuthority next;
  const MountedCertificate old_files(authority_, kOfClient);
  {
    const Callers callers(kNumCallers, [this] { return GenerateAnew(client_files_); });
    RenewAll(authority_, {&authority_, &next});
    RenewAll(next, {&authority_, &next});
    RenewAll(next, {&next});
    callers.AwaitCalls();
  }
  client::ConnectOptions options = Options(old_files);
  options.tls.ca = client_files_.ca();
  options.connect_timeout_ms = 1000;
  if (auto client = client::GenerationClient::Connect(options); client.ok()) {  // TLS 1.3 shows the refusal later
    EXPECT_FALSE(Generate(*client).ok()) << "the old authority";
  }
}

TEST_F(Security, HealthNeedsNoCertificateOnAPortOfItsOwn) {
  const std::string log = verifier_.Log(), marker = "health checks on port ";
  ASSERT_THAT(log, HasSubstr(marker));
  const int port = std::atoi(log.c_str() + log.find(marker) + marker.size());
  const auto check = [](const std::string& address) {
    return testing::CheckHealth(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  };
  const std::string health_address = absl::StrCat("127.0.0.1:", port);
  EXPECT_EQ(check(health_address), testing::Health::kServing);
  const auto stub =
      v1::GenerationService::NewStub(grpc::CreateChannel(health_address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  EXPECT_EQ(stub->Generate(&context, {})->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(check(verifier_.address()), testing::Health::kUnreachable) << "plain text on the port with TLS";
}

struct BadCertificate {
  std::string name;
  testing::CertificateRequest request;
};

void PrintTo(const BadCertificate& bad, std::ostream* out) { *out << bad.name; }

class BadProposer : public Security, public ::testing::WithParamInterface<BadCertificate> {};

TEST_P(BadProposer, IsNotUsedUntilItsCertificateIsRenewed) {
  ASSERT_TRUE(ProposerConnects());
  proposer_files_.Renew(authority_, GetParam().request);
  AwaitRenewal(proposer_, proposer_files_);
  relay_.Cut();
  EXPECT_TRUE(WaitUntil([&] { return verifier_.Metric("foretoken_proposer_replicas_connected") == 0; }));
  absl::SleepFor(absl::Seconds(2));  // several attempts
  EXPECT_EQ(verifier_.Metric("foretoken_proposer_replicas_connected"), 0);
  EXPECT_EQ(verifier_.Metric("foretoken_proposer_connects_total"), 1);
  EXPECT_EQ(GenerateAnew(client_files_), absl::OkStatus()) << "without the proposer";
  proposer_files_.Renew(authority_, kOfProposer);
  EXPECT_TRUE(ProposerConnects());
}

INSTANTIATE_TEST_SUITE_P(
    Certificates, BadProposer,
    ::testing::Values(BadCertificate{"Expired",
                                     {.names = kOfProposer.names, .begins = -absl::Hours(2), .ends = -absl::Hours(1)}},
                      BadCertificate{"OfAnotherName", {.names = {"URI:spiffe://c/client", "IP:127.0.0.1"}}}),
    [](const auto& info) { return info.param.name; });

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
