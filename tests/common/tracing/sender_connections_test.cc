// SPDX-License-Identifier: Apache-2.0
// The connections to a collector. If this test fails, no span is delivered after a certificate was renewed or after the
// collector's host has vanished, a slow name server delays the end of a process, or spans go to a collector that the
// operator's authorities do not know.
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/rpc/tls.h"
#include "common/tracing/grpc_sender.h"
#include "common/tracing/http_sender.h"
#include "common/tracing/otlp.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/tcp_relay.h"
#include "tests/testing/fakes/trace_collector.h"
#include "tests/testing/test_authority.h"

namespace {

std::atomic<int> num_slow_lookups{0};    // of the name slow.test
std::atomic<int> num_system_lookups{0};  // of an authority in the system's folder

}  // namespace

// The libraries of this program call the next two functions in place of the C library's.

// The name slow.test takes longer than any try of these tests.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  if (name != nullptr && absl::string_view(name) == "slow.test") {
    ++num_slow_lookups;
    absl::SleepFor(absl::Seconds(20));
    return EAI_AGAIN;
  }
  static auto* const next = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(name, service, hints, found);
}

// OpenSSL calls it to see whether a folder has an authority.
extern "C" int stat(const char* path, struct stat* status) noexcept {
  if (absl::StartsWith(path, "/etc/ssl/certs/")) ++num_system_lookups;
  static auto* const next = reinterpret_cast<int (*)(const char*, struct stat*)>(dlsym(RTLD_NEXT, "stat"));
  return next(path, status);
}

namespace foretoken::tracing {
namespace {

using Outcome = SendResult::Outcome;
using testing::MountedCertificate;
using testing::TestAuthority;
using testing::TraceCollector;

Outcome Send(const SendBatch& send, absl::Duration timeout = absl::Seconds(10)) {
  std::string span = EncodeSpan({.name = "a span"}, {});
  return send(MakeRequest({&span, 1}, {}), timeout, [] { return false; }).outcome;
}

Endpoint EndpointOf(const MountedCertificate& client, int port, const std::string& path = {}) {
  return {
      .url = absl::StrCat("https://localhost:", port, path),
      .tls = {
          .certificate = client.certificate(), .key = client.key(), .ca = client.ca(), .refresh = absl::Seconds(1)}};
}

// Returns the port on loopback at which the socket listens from now on.
int Listen(int socket) {
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  listen(socket, 1);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

class RenewedCertificate : public ::testing::Test {
 protected:
  const TestAuthority authority_, next_authority_;
  const MountedCertificate server_{next_authority_, {.names = {"DNS:localhost"}}};
  MountedCertificate client_{authority_, {}};
};

TEST_F(RenewedCertificate, IsUsedByGrpcWithoutARestart) {
  const rpc::TlsFiles files = {.certificate = server_.certificate(), .key = server_.key(), .ca = server_.ca()};
  const TraceCollector collector(nullptr, rpc::ServerCredentials(files).value());
  const SendBatch send = MakeGrpcSender(EndpointOf(client_, collector.port())).value();
  EXPECT_EQ(Send(send), Outcome::kTryAgain);
  client_.Renew(next_authority_, {});
  const absl::Time give_up = SteadyNow() + absl::Seconds(60);
  while (Send(send) != Outcome::kDelivered && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(collector.spans().size(), 1u);
}

// A collector by HTTPS that takes only clients of its own authority.
class HttpsCollector {
 public:
  explicit HttpsCollector(const MountedCertificate& certificate)
      : context_(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free),
        socket_(socket(AF_INET, SOCK_STREAM, 0)),
        port_(Listen(socket_)) {
    SSL_CTX_use_certificate_file(context_.get(), certificate.certificate().c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context_.get(), certificate.key().c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_load_verify_locations(context_.get(), certificate.ca().c_str(), nullptr);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpsCollector() {
    shutdown(socket_, SHUT_RDWR);  // ends accept
    thread_.join();
    close(socket_);
  }
  int port() const { return port_; }

 private:
  void Serve() {
    for (int connection; (connection = accept(socket_, nullptr, nullptr)) >= 0; close(connection)) {
      const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context_.get()), &SSL_free);
      SSL_set_fd(tls.get(), connection);
      if (SSL_accept(tls.get()) != 1) continue;
      constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      char request[4096];  // one read takes a request as small as the test's
      if (SSL_read(tls.get(), request, sizeof(request)) > 0) SSL_write(tls.get(), kAnswer, sizeof(kAnswer) - 1);
      SSL_shutdown(tls.get());
    }
  }

  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  const int socket_;
  const int port_;
  std::thread thread_;
};

TEST_F(RenewedCertificate, IsUsedByHttpWithoutARestart) {
  const HttpsCollector collector(server_);
  const SendBatch send = MakeHttpSender(EndpointOf(client_, collector.port(), "/v1/traces")).value();
  EXPECT_EQ(Send(send), Outcome::kTryAgain);
  client_.Renew(next_authority_, {});
  EXPECT_EQ(Send(send), Outcome::kDelivered);
}

// Debian's libcurl looks into the system's folder of authorities, unless it is told not to.
TEST(GivenAuthorities, AreTheOnlyOnesOfHttp) {
  const TestAuthority authority, other;
  const MountedCertificate server(authority, {.names = {"DNS:localhost"}}), client(other, {});
  const HttpsCollector collector(server);
  Endpoint endpoint = EndpointOf(client, collector.port(), "/v1/traces");
  num_system_lookups = 0;
  EXPECT_EQ(Send(MakeHttpSender(endpoint).value()), Outcome::kTryAgain);
  EXPECT_EQ(num_system_lookups, 0);
  endpoint.tls.ca.clear();
  EXPECT_EQ(Send(MakeHttpSender(endpoint).value()), Outcome::kTryAgain);
  EXPECT_GT(num_system_lookups, 0) << "libcurl looks into no folder, so this test proves nothing";
}

TEST(SlowNameServer, CostsATryByHttpItsTimeout) {
  const SendBatch send = MakeHttpSender({.url = "http://slow.test:1/v1/traces"}).value();
  const absl::Time begin = SteadyNow();
  EXPECT_EQ(Send(send, absl::Milliseconds(500)), Outcome::kTryAgain);
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(10));
  EXPECT_EQ(num_slow_lookups.exchange(0), 1) << "libcurl looks up names elsewhere, so this test proves nothing";
}

// The collector's host loses its power, and another one takes over its address. Nothing closes the old connection.
TEST(VanishedCollector, IsFoundAgainAtItsAddress) {
  const TraceCollector collector;
  testing::TcpRelay relay(collector.port());
  const SendBatch send = MakeGrpcSender({.url = "http://" + relay.address()}).value();
  ASSERT_EQ(Send(send), Outcome::kDelivered);
  relay.Freeze();
  EXPECT_EQ(Send(send, absl::Milliseconds(200)), Outcome::kTryAgain);
  relay.Heal();  // the old connection stays silent
  EXPECT_EQ(Send(send, absl::Seconds(2)), Outcome::kDelivered);
}

// Accepts connections and closes them at once.
class ClosedDoor {
 public:
  ClosedDoor() : socket_(socket(AF_INET, SOCK_STREAM, 0)), port_(Listen(socket_)) {
    thread_ = std::thread([this] {
      for (int connection; (connection = accept(socket_, nullptr, nullptr)) >= 0; close(connection)) ++num_knocks_;
    });
  }
  ~ClosedDoor() {
    shutdown(socket_, SHUT_RDWR);  // ends accept
    thread_.join();
    close(socket_);
  }
  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_); }
  int num_knocks() const { return num_knocks_; }

 private:
  const int socket_;
  const int port_;
  std::atomic<int> num_knocks_{0};
  std::thread thread_;
};

// With gRPC's own pauses the fifth attempt to connect comes at least 3.2 seconds after the fourth.
TEST(CollectorThatIsAwayForLong, IsFoundSoonAfterItsReturn) {
  const ClosedDoor door;
  const SendBatch send = MakeGrpcSender({.url = door.url()}).value();
  const auto knocks_until = [&](int num_knocks) {
    const absl::Time begin = SteadyNow();
    while (door.num_knocks() < num_knocks && SteadyNow() < begin + absl::Seconds(30)) {
      EXPECT_EQ(Send(send, absl::Seconds(1)), Outcome::kTryAgain);
      absl::SleepFor(absl::Milliseconds(20));
    }
    return SteadyNow() - begin;
  };
  knocks_until(4);
  EXPECT_LT(knocks_until(5), absl::Milliseconds(2500));
}

}  // namespace
}  // namespace foretoken::tracing
