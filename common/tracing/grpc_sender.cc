// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/grpc_sender.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "common/rpc/compression.h"
#include "common/rpc/tls.h"
#include "common/tracing/answer.h"
#include "common/tracing/otlp.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace foretoken::tracing {
namespace {

using Outcome = SendResult::Outcome;
using Stub = grpc::TemplatedGenericStub<otlp::ExportTraceServiceRequest, grpc::ByteBuffer>;

constexpr char kMethod[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr std::chrono::milliseconds kEndPeriod(100);  // between looks whether the process ends
constexpr int kReconnectMs = 1000;                    // between attempts to connect

std::optional<absl::Duration> RetryDelay(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::RetryInfo info;
    if (detail.UnpackTo(&info)) {
      return absl::Seconds(info.retry_delay().seconds()) + absl::Nanoseconds(info.retry_delay().nanos());
    }
  }
  return std::nullopt;
}

// OTLP's table of codes. A collector that is out of resources takes the batch later only if it says when.
SendResult FailureOf(const grpc::Status& status) {
  SendResult result = {.outcome = Outcome::kRefused, .message = absl::StrCat("OTLP by gRPC: ", status.error_message())};
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      result.outcome = Outcome::kTryAgain;
      result.try_again_after = RetryDelay(status);
      break;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      result.try_again_after = RetryDelay(status);
      if (result.try_again_after.has_value()) result.outcome = Outcome::kTryAgain;
      break;
    default:
      break;
  }
  return result;
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return {};
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

// A channel that lasts as long as the collector answers.
class GrpcSender {
 public:
  GrpcSender(std::string address, std::shared_ptr<grpc::ChannelCredentials> credentials, Endpoint endpoint)
      : address_(std::move(address)), credentials_(std::move(credentials)), endpoint_(std::move(endpoint)) {}

  SendResult Send(const otlp::ExportTraceServiceRequest& request, absl::Duration timeout, const MustEnd& must_end) {
    if (stub_ == nullptr) stub_ = Connect();
    grpc::ClientContext context;
    context.set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
    for (const auto& [key, value] : endpoint_.headers) context.AddMetadata(absl::AsciiStrToLower(key), value);
    if (endpoint_.compresses) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    grpc::ByteBuffer answer;
    const auto end = std::make_shared<std::promise<grpc::Status>>();  // gRPC's thread may still hold it after the wait
    std::future<grpc::Status> ended = end->get_future();
    stub_->UnaryCall(&context, kMethod, grpc::StubOptions(), &request, &answer,
                     [end](grpc::Status status) { end->set_value(std::move(status)); });
    const absl::Time give_up = SteadyNow() + timeout;  // gRPC's own deadline may follow the system's clock
    while (ended.wait_for(kEndPeriod) != std::future_status::ready) {
      if (must_end() || SteadyNow() >= give_up) context.TryCancel();
    }
    const grpc::Status status = ended.get();
    // The collector's host may have vanished, which no connection notices for many minutes. The next try makes a new
    // one.
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED || SteadyNow() >= give_up) stub_.reset();
    return status.ok() ? ReadAnswer(BytesOf(answer)) : FailureOf(status);
  }

 private:
  std::unique_ptr<Stub> Connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxResponseBytes);
    if (endpoint_.compresses) {
      // Servers in Go answer in the request's encoding. gRPC would inflate any number of bytes; ReadAnswer does not.
      arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    } else {
      for (const auto& [name, value] : rpc::kNoCompression) arguments.SetInt(name, value);
    }
    // Without TLS a proxy would read the spans and the secrets in the headers.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, absl::StartsWith(endpoint_.url, "https://") ? 1 : 0);
    arguments.SetUserAgentPrefix(UserAgent());
    // The exporter has its own pauses. gRPC's would grow to two minutes, while new spans are lost.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // or a new channel may get the old connection
    return std::make_unique<Stub>(grpc::CreateCustomChannel(address_, credentials_, arguments));
  }

  const std::string address_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const Endpoint endpoint_;
  std::unique_ptr<Stub> stub_;  // null: the next try connects
};

}  // namespace

absl::StatusOr<SendBatch> MakeGrpcSender(const Endpoint& endpoint) {
  absl::string_view address = endpoint.url;
  const bool is_secure = absl::ConsumePrefix(&address, "https://");
  absl::ConsumePrefix(&address, "http://");
  address = address.substr(0, address.find('/'));
  address = address.substr(address.rfind('@') + 1);  // a name and a password are not gRPC's way to log in
  FT_ASSIGN_OR_RETURN(const auto credentials,
                      rpc::ChannelCredentials(is_secure ? endpoint.tls : rpc::TlsFiles(), is_secure));
  const auto sender = std::make_shared<GrpcSender>(std::string(address), credentials, endpoint);
  return [sender](const otlp::ExportTraceServiceRequest& request, absl::Duration timeout, const MustEnd& must_end) {
    return sender->Send(request, timeout, must_end);
  };
}

}  // namespace foretoken::tracing
