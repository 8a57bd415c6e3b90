// SPDX-License-Identifier: Apache-2.0
// One try to send a batch, by gRPC and by HTTP. If this test fails, a collector gets nothing, gets a batch twice, or
// loses a batch that it would have taken later.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/steady_clock.h"
#include "common/tracing/console_sender.h"
#include "common/tracing/grpc_sender.h"
#include "common/tracing/http_sender.h"
#include "common/tracing/otlp.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/trace_collector.h"

namespace foretoken::tracing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Outcome = SendResult::Outcome;
using testing::TraceCollector;

otlp::ExportTraceServiceRequest BatchOf(const Span& span) {
  std::string encoded = EncodeSpan(span, {});
  return MakeRequest({&encoded, 1}, {});
}
otlp::ExportTraceServiceRequest Batch() { return BatchOf({.name = "a span"}); }

SendResult SendByGrpc(const TraceCollector& collector, Endpoint endpoint = {}) {
  endpoint.url = collector.url();
  return MakeGrpcSender(endpoint).value()(Batch(), absl::Seconds(10), [] { return false; });
}

TEST(GrpcSender, DeliversABatch) {
  TraceCollector collector;
  EXPECT_EQ(SendByGrpc(collector).outcome, Outcome::kDelivered);
  EXPECT_EQ(SendByGrpc(collector, {.compresses = true}).outcome, Outcome::kDelivered);
  ASSERT_EQ(collector.spans().size(), 2u);
  EXPECT_EQ(collector.spans()[1].span.name(), "a span");
}

TraceCollector::Answer Rejects(int64_t num_spans, const std::string& message) {
  return [=](otlp::ExportTraceServiceResponse* response) {
    response->mutable_partial_success()->set_rejected_spans(num_spans);
    response->mutable_partial_success()->set_error_message(message);
    return grpc::Status::OK;
  };
}

TEST(GrpcSender, ReportsAPartialSuccess) {
  TraceCollector collector(Rejects(3, "bad"));
  const SendResult result = SendByGrpc(collector);
  EXPECT_EQ(result.outcome, Outcome::kDelivered);
  EXPECT_EQ(result.num_rejected_spans, 3u);
  EXPECT_EQ(result.message, "bad");
}

TEST(GrpcSender, ReadsACompressedAnswer) {
  const std::string message(1000, 'x');  // long enough that compression saves bytes
  TraceCollector collector(Rejects(3, message), grpc::InsecureServerCredentials(), GRPC_COMPRESS_GZIP);
  const SendResult result = SendByGrpc(collector, {.compresses = true});
  EXPECT_EQ(result.outcome, Outcome::kDelivered);
  EXPECT_EQ(result.num_rejected_spans, 3u);
  EXPECT_EQ(result.message, message);
}

// gRPC says so of a message that it has inflated.
constexpr char kAfterInflation[] = "larger than max";

TEST(GrpcSender, AnAnswerThatInflatesTooMuchIsNotInflatedAndTheBatchNotSentAgain) {
  TraceCollector collector(Rejects(3, std::string(64 << 20, 'x')), grpc::InsecureServerCredentials(),
                           GRPC_COMPRESS_GZIP);
  for (const bool compresses : {true, false}) {
    const SendResult result = SendByGrpc(collector, {.compresses = compresses});
    EXPECT_EQ(result.outcome, Outcome::kRefused) << compresses;
    EXPECT_THAT(result.message, Not(HasSubstr(kAfterInflation))) << compresses;
  }
}

TEST(GrpcSender, AnAnswerThatCannotBeReadIsOfADeliveredBatch) {
  TraceCollector collector([](otlp::ExportTraceServiceResponse* response) {
    response->GetReflection()->MutableUnknownFields(response)->AddVarint(/*number=*/0, 1);  // a number that none has
    return grpc::Status::OK;
  });
  EXPECT_EQ(SendByGrpc(collector).outcome, Outcome::kDelivered);
}

TEST(GrpcSender, KnowsWhichErrorsPass) {
  for (const auto& [code, outcome] : {std::pair(grpc::StatusCode::UNAVAILABLE, Outcome::kTryAgain),
                                      {grpc::StatusCode::ABORTED, Outcome::kTryAgain},
                                      {grpc::StatusCode::RESOURCE_EXHAUSTED, Outcome::kRefused},
                                      {grpc::StatusCode::INVALID_ARGUMENT, Outcome::kRefused},
                                      {grpc::StatusCode::UNAUTHENTICATED, Outcome::kRefused}}) {
    TraceCollector collector([code = code](otlp::ExportTraceServiceResponse*) { return grpc::Status(code, "no"); });
    EXPECT_EQ(SendByGrpc(collector).outcome, outcome) << code;
  }
}

TEST(GrpcSender, AFullCollectorThatSaysWhenIsTriedAgainThen) {
  TraceCollector collector([](otlp::ExportTraceServiceResponse*) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(2);
    google::rpc::Status details;
    details.add_details()->PackFrom(info);
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details.SerializeAsString());
  });
  const SendResult result = SendByGrpc(collector);
  EXPECT_EQ(result.outcome, Outcome::kTryAgain);
  EXPECT_EQ(result.try_again_after, absl::Seconds(2));
}

TEST(GrpcSender, NobodyThereIsTriedAgainAndTakesNoLongerThanTheTimeout) {
  const SendBatch send = MakeGrpcSender({.url = "http://127.0.0.1:1"}).value();
  EXPECT_EQ(send(Batch(), absl::Milliseconds(200), [] { return false; }).outcome, Outcome::kTryAgain);
}

TEST(GrpcSender, EndsWhenTheProcessEnds) {
  absl::Notification may_answer;
  TraceCollector collector([&](otlp::ExportTraceServiceResponse*) {
    may_answer.WaitForNotification();
    return grpc::Status::OK;
  });
  const SendBatch send = MakeGrpcSender({.url = collector.url()}).value();
  EXPECT_EQ(send(Batch(), absl::Minutes(1), [] { return true; }).outcome, Outcome::kTryAgain);
  may_answer.Notify();
}

TEST(Senders, ACertificateThatCannotBeReadIsAnErrorWhereItIsNeeded) {
  const Endpoint plain = {.url = "http://127.0.0.1:1", .tls = {.ca = "/no/such.pem"}};
  EXPECT_TRUE(MakeGrpcSender(plain).ok());
  EXPECT_TRUE(MakeHttpSender(plain).ok());
  const Endpoint endpoint = {.url = "https://127.0.0.1:1", .tls = {.ca = "/no/such.pem"}};
  EXPECT_THAT(MakeGrpcSender(endpoint).status().message(), HasSubstr("/no/such.pem"));
  EXPECT_THAT(MakeHttpSender(endpoint).status().message(), HasSubstr("/no/such.pem"));
}

constexpr char kNoAnswer[] = "none";

// Answers one HTTP request with fixed bytes, or takes it and never answers.
class HttpCollector {
 public:
  explicit HttpCollector(std::string answer) : answer_(std::move(answer)), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    bind(socket_, reinterpret_cast<sockaddr*>(&address), size);
    listen(socket_, 1);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpCollector() {
    shutdown(socket_, SHUT_RDWR);  // ends accept, if nobody came
    if (thread_.joinable()) thread_.join();
    close(socket_);
  }
  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_, "/v1/traces"); }
  // After the answer.
  std::string TakeRequest() {
    thread_.join();
    return request_;
  }

 private:
  void Serve() {
    const int connection = accept(socket_, nullptr, nullptr);
    char buffer[4096];
    while (!IsWhole()) {
      const ssize_t num_bytes = recv(connection, buffer, sizeof(buffer), 0);
      if (num_bytes <= 0) break;
      request_.append(buffer, static_cast<size_t>(num_bytes));
    }
    if (answer_ == kNoAnswer) {
      recv(connection, buffer, 1, 0);  // returns when the sender gives up
    } else {
      send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    close(connection);
  }
  bool IsWhole() const {
    const size_t head = request_.find("\r\n\r\n"), length = request_.find("Content-Length: ");
    return head != std::string::npos && length != std::string::npos &&
           request_.size() >= head + 4 + std::stoul(request_.substr(length + 16));
  }

  const std::string answer_;
  const int socket_;
  int port_ = 0;
  std::string request_;
  std::thread thread_;
};

SendResult SendByHttp(HttpCollector& collector, Endpoint endpoint = {}) {
  endpoint.url = collector.url();
  return MakeHttpSender(endpoint).value()(Batch(), absl::Seconds(10), [] { return false; });
}

TEST(HttpSender, DeliversABatchWithItsHeaders) {
  HttpCollector collector("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(SendByHttp(collector, {.headers = {{"Authorization", "Bearer x"}}}).outcome, Outcome::kDelivered);
  const std::string request = collector.TakeRequest();
  EXPECT_THAT(request, HasSubstr("POST /v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Content-Type: application/x-protobuf\r\n"));
  EXPECT_THAT(request, HasSubstr("Authorization: Bearer x\r\n"));
  EXPECT_THAT(request, HasSubstr(" OTel-OTLP-Exporter-Cpp/"));
  EXPECT_THAT(request, Not(HasSubstr("Expect:")));
  otlp::ExportTraceServiceRequest batch;
  ASSERT_TRUE(batch.ParseFromString(request.substr(request.find("\r\n\r\n") + 4)));
  EXPECT_EQ(batch.SerializeAsString(), Batch().SerializeAsString());
}

TEST(HttpSender, CompressesWithGzip) {
  HttpCollector collector("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(SendByHttp(collector, {.compresses = true}).outcome, Outcome::kDelivered);
  const std::string request = collector.TakeRequest();
  EXPECT_THAT(request, HasSubstr("Content-Encoding: gzip\r\n"));
  EXPECT_EQ(request.substr(request.find("\r\n\r\n") + 4, 2), "\x1f\x8b");
}

TEST(HttpSender, ReportsAPartialSuccess) {
  otlp::ExportTraceServiceResponse response;
  response.mutable_partial_success()->set_rejected_spans(4);
  response.mutable_partial_success()->set_error_message("caf\xE9");  // no UTF-8
  const std::string body = response.SerializeAsString();
  HttpCollector collector(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  EXPECT_EQ(SendByHttp(collector).num_rejected_spans, 4u);
}

TEST(HttpSender, KnowsWhichStatusesPass) {
  for (const auto& [status, outcome] : {std::pair("429", Outcome::kTryAgain),
                                        {"502", Outcome::kTryAgain},
                                        {"503", Outcome::kTryAgain},
                                        {"504", Outcome::kTryAgain},
                                        {"500", Outcome::kRefused},
                                        {"400", Outcome::kRefused},
                                        {"302", Outcome::kRefused}}) {
    HttpCollector collector(absl::StrCat("HTTP/1.1 ", status, " No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"));
    const SendResult result = SendByHttp(collector);
    EXPECT_EQ(result.outcome, outcome) << status;
    if (outcome == Outcome::kTryAgain) {
      EXPECT_EQ(result.try_again_after, absl::Seconds(7));
    }
  }
}

TEST(HttpSender, ARefusalSaysWhyInTheCollectorsWords) {
  const auto message_of = [](absl::string_view body) {
    HttpCollector collector(absl::StrCat("HTTP/1.1 400 No\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    return SendByHttp(collector).message;
  };
  google::rpc::Status status;
  status.set_message("span 2 has no name");
  EXPECT_EQ(message_of(status.SerializeAsString()), "HTTP 400: span 2 has no name");
  EXPECT_EQ(message_of("{\"message\":\"no\"}"), "HTTP 400");
  status.set_message(std::string(1 << 20, 'x'));
  EXPECT_EQ(message_of(status.SerializeAsString()), "HTTP 400") << "a text of any length is not read";
}

TEST(HttpSender, ABrokenConnectionIsTriedAgain) {
  HttpCollector collector("");
  EXPECT_EQ(SendByHttp(collector).outcome, Outcome::kTryAgain);
}

TEST(HttpSender, ACollectorThatHangsCostsTheTimeout) {
  HttpCollector collector(kNoAnswer);
  const SendBatch send = MakeHttpSender({.url = collector.url()}).value();
  const absl::Time begin = SteadyNow();
  EXPECT_EQ(send(Batch(), absl::Milliseconds(300), [] { return false; }).outcome, Outcome::kTryAgain);
  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(290));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(20));
}

TEST(HttpSender, EndsWhenTheProcessEnds) {
  HttpCollector collector(kNoAnswer);
  const SendBatch send = MakeHttpSender({.url = collector.url()}).value();
  const absl::Time begin = SteadyNow();
  const MustEnd must_end = [&] { return SteadyNow() >= begin + absl::Milliseconds(100); };
  EXPECT_EQ(send(Batch(), absl::Hours(1), must_end).outcome, Outcome::kTryAgain);
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(20));
}

TEST(HttpSender, AnAnswerThatIsTooLongIsNotReadAndTheBatchNotSentAgain) {
  constexpr size_t kBytes = kMaxResponseBytes + 1;
  HttpCollector collector(
      absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", kBytes, "\r\n\r\n", std::string(kBytes, 'x')));
  EXPECT_EQ(SendByHttp(collector).outcome, Outcome::kRefused);
}

TEST(HttpSender, TrailersThatAreTooLongAreNotKept) {
  std::string answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
  while (answer.size() <= kMaxResponseBytes) absl::StrAppend(&answer, "x: ", std::string(4000, 'y'), "\r\n");
  HttpCollector collector(answer + "\r\n");
  EXPECT_EQ(SendByHttp(collector).outcome, Outcome::kRefused);
}

// While it lives, this process is told of a proxy at a port where nobody listens.
class DeadProxy {
 public:
  DeadProxy() {
    for (const char* const variable : {"http_proxy", "grpc_proxy", "no_proxy", "NO_PROXY", "no_grpc_proxy"}) {
      if (const char* const value = std::getenv(variable)) before_[variable] = value;
      unsetenv(variable);
    }
    setenv("http_proxy", "http://127.0.0.1:1", /*overwrite=*/1);
  }
  ~DeadProxy() {
    unsetenv("http_proxy");
    for (const auto& [variable, value] : before_) setenv(variable.c_str(), value.c_str(), /*overwrite=*/1);
  }

 private:
  std::map<std::string, std::string> before_;
};

TEST(Senders, SendNothingToAProxyWithoutTls) {
  const DeadProxy proxy;
  TraceCollector by_grpc;
  EXPECT_EQ(SendByGrpc(by_grpc).outcome, Outcome::kDelivered);
  HttpCollector by_http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(SendByHttp(by_http).outcome, Outcome::kDelivered);
}

class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
  }
  ~Pipe() {
    for (const int end : ends_) close(end);
  }
  int writing_end() const { return ends_[1]; }
  // Returns the bytes that are in the pipe now, and does not wait for more.
  std::string ReadAll() const {
    std::string all;
    char part[4096];
    for (ssize_t size; (size = read(ends_[0], part, sizeof(part))) > 0;) all.append(part, static_cast<size_t>(size));
    return all;
  }

 private:
  int ends_[2];
};

TEST(ConsoleSender, WritesABatchAsALineWithReadableIds) {
  Span span = {.name = "a span", .links = std::vector<SpanLink>(1)};
  span.context.trace_id.fill('\x1f');
  span.links[0].context.span_id.fill('\x2e');
  const otlp::ExportTraceServiceRequest request = BatchOf(span);
  Pipe pipe;
  EXPECT_EQ(MakeConsoleSender(pipe.writing_end())(request, absl::Seconds(20), [] { return false; }).outcome,
            Outcome::kDelivered);
  const std::string out = pipe.ReadAll();
  EXPECT_THAT(out, HasSubstr("\"name\":\"a span\""));
  EXPECT_THAT(out, HasSubstr("\"traceId\":\"1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f\""));
  EXPECT_THAT(out, HasSubstr("\"spanId\":\"2e2e2e2e2e2e2e2e\""));
  EXPECT_EQ(std::ranges::count(out, '\n'), 1);
}

// Else a process whose output nobody reads could not end.
TEST(ConsoleSender, APipeThatNobodyReadsCostsItsTimeAndTheBatch) {
  const otlp::ExportTraceServiceRequest request = BatchOf({.name = std::string(1 << 20, 'x')});
  Pipe pipe;
  const SendBatch send = MakeConsoleSender(pipe.writing_end());
  EXPECT_EQ(send(request, absl::Milliseconds(200), [] { return false; }).outcome, Outcome::kRefused);
  EXPECT_EQ(send(request, absl::Hours(1), [] { return true; }).outcome, Outcome::kRefused);
  pipe.ReadAll();
  EXPECT_EQ(send(Batch(), absl::Seconds(20), [] { return false; }).outcome, Outcome::kDelivered);
  EXPECT_EQ(pipe.ReadAll().front(), '\n') << "the cut line ends";
}

TEST(RetryAfter, IsSecondsOrADate) {
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2026, 11, 23, 12, 0, 0), absl::UTCTimeZone());
  EXPECT_EQ(ParseRetryAfter("120", now), absl::Minutes(2));
  EXPECT_EQ(ParseRetryAfter("-5", now), absl::ZeroDuration());
  EXPECT_EQ(ParseRetryAfter("Mon, 23 Nov 2026 12:00:30 GMT", now), absl::Seconds(30));
  EXPECT_EQ(ParseRetryAfter("Mon, 23 Nov 2026 11:00:00 GMT", now), absl::ZeroDuration());
  EXPECT_FALSE(ParseRetryAfter("soon", now).has_value());
  EXPECT_FALSE(ParseRetryAfter("", now).has_value());
}

}  // namespace
}  // namespace foretoken::tracing
