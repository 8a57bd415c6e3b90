// SPDX-License-Identifier: Apache-2.0
// TLS between two processes' ends. If this test fails, a stranger reaches a service, a good peer does not, or a renewed
// certificate breaks calls.
#include "common/rpc/tls.h"

#include <grpcpp/grpcpp.h>
#include <openssl/pem.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/fakes/fake_generation_service.h"
#include "tests/testing/test_authority.h"

namespace foretoken::rpc {
namespace {

using testing::CertificateRequest;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::MountedCertificate;
using testing::TestAuthority;

constexpr char kVerifier[] = "spiffe://cluster/ns/llm/sa/verifier", kStranger[] = "spiffe://cluster/ns/llm/sa/stranger";

TlsFiles FilesOf(const MountedCertificate& mounted) {
  return {.certificate = mounted.certificate(), .key = mounted.key(), .ca = mounted.ca(), .refresh = absl::Seconds(1)};
}

// A server of any service with these credentials.
class SecureServer {
 public:
  explicit SecureServer(const TlsFiles& files) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", ServerCredentials(files).value(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~SecureServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  // Opens a connection of its own.
  grpc::StatusCode Call(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                        const std::string& host = "localhost") const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(absl::StrCat(host, ":", port_), credentials, arguments);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::GetModelInfoResponse response;
    return v1::GenerationService::NewStub(channel)->GetModelInfo(&context, {}, &response).error_code();
  }
  grpc::StatusCode Call(const TlsFiles& files, const std::string& host = "localhost") const {
    return Call(ChannelCredentials(files).value(), host);
  }

 private:
  testing::FakeGenerationService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The alternative names of a certificate in DER: one name, which may have any bytes.
std::string RawName(absl::string_view tag, absl::string_view name) {
  const std::string whole = absl::StrCat(tag, std::string(1, static_cast<char>(name.size())), name);
  return absl::StrCat(
      "DER:", absl::BytesToHexString(absl::StrCat("\x30", std::string(1, static_cast<char>(whole.size())), whole)));
}
std::string RawDnsName(absl::string_view name) { return RawName("\x82", name); }
std::string RawUri(absl::string_view uri) { return RawName("\x86", uri); }

class Tls : public ::testing::Test {
 protected:
  static constexpr grpc::StatusCode kOk = grpc::StatusCode::OK, kRefused = grpc::StatusCode::UNAVAILABLE;
  const TestAuthority authority_;
  const MountedCertificate server_files_{authority_, {.names = {"DNS:localhost"}}};
  const MountedCertificate client_files_{authority_, {.names = {absl::StrCat("URI:", kVerifier)}}};
};

TEST_F(Tls, AServersCertificateIsEnoughWithoutMutualTls) {
  TlsFiles files = FilesOf(server_files_);
  files.ca.clear();
  const SecureServer server(files);
  EXPECT_EQ(server.Call(TlsFiles{.ca = server_files_.ca()}), kOk);
  EXPECT_EQ(server.Call(grpc::InsecureChannelCredentials()), kRefused);
}

TEST_F(Tls, AServerOfAnotherAuthorityOrAnotherNameIsRefused) {
  TlsFiles files = FilesOf(server_files_);
  files.ca.clear();
  const SecureServer server(files);
  const TestAuthority other;
  const MountedCertificate other_files(other, {});
  EXPECT_EQ(server.Call(TlsFiles{.ca = other_files.ca()}), kRefused);
  EXPECT_EQ(server.Call(TlsFiles{.ca = server_files_.ca()}, "127.0.0.1"), kRefused);
}

TEST_F(Tls, AServersNameIsAWholeOne) {
  const auto call_as = [&](const std::string& name, const std::string& host) {
    const MountedCertificate mounted(authority_, {.names = {name}});
    const SecureServer server(FilesOf(mounted));
    return server.Call(FilesOf(client_files_), host);
  };
  EXPECT_EQ(call_as(RawDnsName("localhost"), "localhost"), kOk);
  EXPECT_EQ(call_as(RawDnsName(absl::string_view("localhost\0.evil", 15)), "localhost"), kRefused);
  EXPECT_EQ(call_as("DNS:*.localhost", "localhost"), kRefused);
  EXPECT_EQ(call_as("URI:localhost", "localhost"), kRefused);
  EXPECT_EQ(call_as("IP:127.0.0.1", "127.0.0.1"), kOk);
  EXPECT_EQ(call_as("IP:127.0.0.2", "127.0.0.1"), kRefused);
  EXPECT_EQ(call_as("DNS:127.0.0.1", "127.0.0.1"), kRefused);
}

TEST_F(Tls, MutualTlsAsksEveryClientForACertificate) {
  const SecureServer server(FilesOf(server_files_));
  EXPECT_EQ(server.Call(FilesOf(client_files_)), kOk);
  EXPECT_EQ(server.Call(TlsFiles{.ca = server_files_.ca()}), kRefused);
  const TestAuthority other;
  MountedCertificate stranger(other, {});
  TlsFiles files = FilesOf(stranger);
  files.ca = server_files_.ca();
  EXPECT_EQ(server.Call(files), kRefused);
}

TEST_F(Tls, AnExpiredOrFutureCertificateIsRefused) {
  const SecureServer server(FilesOf(server_files_));
  const MountedCertificate expired(authority_, {.begins = -absl::Hours(2), .ends = -absl::Hours(1)});
  EXPECT_EQ(server.Call(FilesOf(expired)), kRefused);
  const MountedCertificate future(authority_, {.begins = absl::Hours(1), .ends = absl::Hours(2)});
  EXPECT_EQ(server.Call(FilesOf(future)), kRefused);
}

TEST_F(Tls, OnlyAllowedIdentitiesMayCallAServer) {
  TlsFiles files = FilesOf(server_files_);
  files.identities = {kVerifier};
  const SecureServer server(files);
  EXPECT_EQ(server.Call(FilesOf(client_files_)), kOk);
  const MountedCertificate stranger(authority_, {.names = {absl::StrCat("URI:", kStranger)}});
  const testing::CapturedLog log;
  EXPECT_EQ(server.Call(FilesOf(stranger)), kRefused);
  EXPECT_THAT(log.Lines(), Contains(HasSubstr(kStranger)));
  const MountedCertificate nameless(authority_, {});
  EXPECT_EQ(server.Call(FilesOf(nameless)), kRefused);
}

TEST_F(Tls, AnIdentityIsAWholeNameOfItsKind) {
  TlsFiles files = FilesOf(server_files_);
  files.identities = {kVerifier, "verifier.llm"};
  const SecureServer server(files);
  const auto call_as = [&](const std::string& name) {
    const MountedCertificate mounted(authority_, {.names = {name}});
    return server.Call(FilesOf(mounted));
  };
  EXPECT_EQ(call_as(RawUri(kVerifier)), kOk);
  EXPECT_EQ(call_as(RawUri(absl::StrCat(kVerifier, absl::string_view("\0.evil", 6)))), kRefused);
  EXPECT_EQ(call_as(absl::StrCat("DNS:", kVerifier)), kRefused);
  EXPECT_EQ(call_as("DNS:verifier.llm"), kOk);
  EXPECT_EQ(call_as("DNS:*.llm"), kRefused);
  EXPECT_EQ(call_as("URI:verifier.llm"), kRefused);
  EXPECT_EQ(call_as("DNS:VERIFIER.llm"), kRefused);
}

TEST_F(Tls, OnlyAnAllowedIdentityMayBeTheServerWhateverItsAddress) {
  const SecureServer server(FilesOf(server_files_));
  TlsFiles files = FilesOf(client_files_);
  files.identities = {"localhost"};
  EXPECT_EQ(server.Call(files, "127.0.0.1"), kOk);
  files.identities = {"other"};
  EXPECT_EQ(server.Call(files), kRefused);
}

TEST_F(Tls, ARenewedCertificateIsTakenWithoutARestart) {
  MountedCertificate mounted(authority_, {.names = {"DNS:localhost"}});
  const SecureServer server(FilesOf(mounted));
  EXPECT_EQ(server.Call(FilesOf(client_files_)), kOk);
  const TestAuthority next;
  mounted.Renew(next, {.names = {"DNS:localhost"}});
  const MountedCertificate next_client(next, {});
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (server.Call(FilesOf(next_client)) != kOk && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(server.Call(FilesOf(next_client)), kOk);
  EXPECT_EQ(server.Call(FilesOf(client_files_)), kRefused);
}

// gRPC itself would end the process, or refuse every handshake.
TEST_F(Tls, FilesThatAreEmptyBrokenOrWrongChangeNothing) {
  const auto write = [](const std::string& text) {
    return [text](const std::string& path) { std::ofstream(path) << text; };
  };
  const auto cut = [](const std::string& path) { std::filesystem::resize_file(path, 300); };
  const auto remove = [](const std::string& path) { std::filesystem::remove(path); };
  const std::string other_key = authority_.Issue({}).key;
  using Path = std::string (MountedCertificate::*)() const;
  struct Damage {
    Path file;
    std::function<void(const std::string& path)> make;
  };
  std::vector<Damage> damages;
  for (const Path file : {&MountedCertificate::certificate, &MountedCertificate::key, &MountedCertificate::ca}) {
    for (const auto& make : std::vector<std::function<void(const std::string&)>>{
             write(""), write("garbage"), cut, remove, write("-----BEGIN CERTIFICATE-----\nAAAA\n")}) {
      damages.push_back({file, make});
    }
  }
  damages.push_back({&MountedCertificate::key, write(other_key)});
  damages.push_back({&MountedCertificate::certificate, [other_key](const std::string& path) {
                       const std::string certificate = base::ReadFile(path).value();
                       std::ofstream(path) << other_key << certificate;  // gRPC takes the first key that it finds
                     }});
  std::vector<std::unique_ptr<MountedCertificate>> mounted;
  std::vector<std::unique_ptr<SecureServer>> servers;
  for (const Damage& damage : damages) {
    mounted.push_back(std::make_unique<MountedCertificate>(authority_, CertificateRequest{.names = {"DNS:localhost"}}));
    servers.push_back(std::make_unique<SecureServer>(FilesOf(*mounted.back())));
    damage.make((mounted.back().get()->*damage.file)());
  }
  absl::SleepFor(absl::Seconds(4));  // a look at the files, and one of gRPC's at the copies, with time to spare
  for (size_t i = 0; i < servers.size(); ++i) EXPECT_EQ(servers[i]->Call(FilesOf(client_files_)), kOk) << i;
  const TestAuthority next;
  const MountedCertificate next_client(next, {});
  for (const auto& files : mounted) files->Renew(next, {.names = {"DNS:localhost"}});
  const absl::Time give_up = SteadyNow() + absl::Seconds(40);
  for (const auto& server : servers) {
    while (server->Call(FilesOf(next_client)) != kOk && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(server->Call(FilesOf(next_client)), kOk) << "the files are right again";
  }
}

// OpenSSL refuses signatures that are no longer safe, and gRPC would end every handshake.
TEST_F(Tls, AWeakCertificateChangesNothingAndIsNamedAtTheStart) {
  MountedCertificate mounted(authority_, {.names = {"DNS:localhost"}});
  const SecureServer server(FilesOf(mounted));
  mounted.Renew(authority_, {.names = {"DNS:localhost"}, .is_weak = true});
  EXPECT_THAT(CheckTls(FilesOf(mounted)).message(), HasSubstr("cannot be used"));
  absl::SleepFor(absl::Seconds(4));
  EXPECT_EQ(server.Call(FilesOf(client_files_)), kOk);
  mounted.Renew(authority_, {.names = {"DNS:localhost"}});
  std::ofstream(mounted.certificate(), std::ios::app) << authority_.Issue({}).certificate;
  EXPECT_EQ(CheckTls(FilesOf(mounted)), absl::OkStatus());
  std::ofstream(mounted.certificate(), std::ios::app) << authority_.Issue({.is_weak = true}).certificate;
  EXPECT_THAT(CheckTls(FilesOf(mounted)).message(), HasSubstr("cannot be used")) << "a chain with a weak certificate";
}

TEST_F(Tls, FilesThatAreWatchedMayBeBrokenWhereTheyAreNeededAgain) {
  MountedCertificate mounted(authority_, {.names = {"DNS:localhost"}});
  ASSERT_TRUE(ServerCredentials(FilesOf(mounted)).ok());  // as a service does before it loads its model
  std::ofstream(mounted.key()) << "";
  EXPECT_FALSE(CheckTls(FilesOf(mounted)).ok());
  const SecureServer server(FilesOf(mounted));
  EXPECT_EQ(server.Call(FilesOf(client_files_)), kOk);
}

TEST_F(Tls, HalfABundleIsNotTaken) {
  const TestAuthority second;
  MountedCertificate mounted(authority_, {.names = {"DNS:localhost"}});
  mounted.Renew(authority_, {.names = {"DNS:localhost"}}, {&authority_, &second});
  const SecureServer server(FilesOf(mounted));
  const MountedCertificate second_client(second, {}, {&authority_});
  for (int round = 0; round < 3; ++round) {
    std::ofstream(mounted.ca()) << authority_.certificate();
    absl::SleepFor(absl::Milliseconds(700));
    std::ofstream(mounted.ca()) << authority_.certificate() << second.certificate();
    const absl::Time end = SteadyNow() + absl::Milliseconds(2500);  // a look that saw half a bundle, and two more
    while (SteadyNow() < end) EXPECT_EQ(server.Call(FilesOf(second_client)), kOk) << round;
  }
}

TEST_F(Tls, ARenewalDuringACheckIsNoMistake) {
  MountedCertificate mounted(authority_, {});
  std::atomic<bool> is_over = false;
  std::thread renewals([&] {
    while (!is_over) mounted.Renew(authority_, {});
  });
  for (int i = 0; i < 1500; ++i) EXPECT_EQ(CheckTls(FilesOf(mounted)), absl::OkStatus()) << i;
  is_over = true;
  renewals.join();
}

TEST_F(Tls, AMistakeInTheFilesIsNamedAtTheStart) {
  TlsFiles files = FilesOf(server_files_);
  files.key = "/no/such.key";
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("/no/such.key"));
  files = FilesOf(server_files_);
  files.key.clear();
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("needs its key"));
  EXPECT_THAT(ServerCredentials({.ca = server_files_.ca()}).status().message(), HasSubstr("certificate"));
  EXPECT_THAT(ChannelCredentials({.identities = {"x"}}).status().message(), HasSubstr("CA"));
  for (const std::vector<std::string>& identities :
       {{"x", ""}, {"", "x"}, {"x", " y"}, std::vector<std::string>{"x\t", "y"}}) {
    EXPECT_THAT(ChannelCredentials({.ca = server_files_.ca(), .identities = identities}).status().message(),
                HasSubstr("without blanks around the commas"));
  }
  files = FilesOf(server_files_);
  files.key = client_files_.key();
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("is not the key"));
  files.key = server_files_.certificate();
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("is no PEM file of a key"));
  files = FilesOf(server_files_);
  files.refresh = absl::ZeroDuration();
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("1s"));
  const testing::TempDir directory;
  files = FilesOf(server_files_);
  files.ca = directory.path() + "/ca";
  std::ofstream(files.ca) << "no certificate";
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("no PEM"));
}

TEST_F(Tls, AKeyWithAPassphraseIsAMistakeAndNotAQuestion) {
  TlsFiles files = FilesOf(server_files_);
  const std::string key = base::ReadFile(files.key).value();
  const std::unique_ptr<BIO, decltype(&BIO_free)> in(BIO_new_mem_buf(key.data(), static_cast<int>(key.size())),
                                                     &BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> parsed(
      PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  const testing::TempDir directory;
  files.key = directory.path() + "/key";
  const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new_file(files.key.c_str(), "w"), &BIO_free);
  ASSERT_EQ(
      PEM_write_bio_PKCS8PrivateKey(out.get(), parsed.get(), EVP_aes_256_cbc(), "passphrase", 10, nullptr, nullptr), 1);
  BIO_flush(out.get());
  EXPECT_THAT(ServerCredentials(files).status().message(), HasSubstr("needs a passphrase"));
}

TEST(IsLoopback, KnowsTheAddressesOfThisMachineAlone) {
  for (const char* address : {"localhost:1", "127.0.0.1:0", "127.1.2.3:50051", "[::1]:1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "localhost.evil:1", "127.evil:1", "1.127.0.1:1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace foretoken::rpc
