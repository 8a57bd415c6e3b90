// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/grpc_sender.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
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
#include "common/base/version.h"
#include "common/rpc/tls.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace foretoken::tracing {
namespace {

using Outcome = SendResult::Outcome;
using Stub = grpc::TemplatedGenericStub<otlp::ExportTraceServiceRequest, otlp::ExportTraceServiceResponse>;

constexpr char kMethod[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr std::chrono::milliseconds kEndPeriod(100);  // between looks whether the process ends
constexpr int kMaxResponseBytes = 4 << 20;

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
  SendResult result = {.outcome = Outcome::kRefused, .message = status.error_message()};
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

SendResult Send(Stub& stub, const Endpoint& endpoint, const otlp::ExportTraceServiceRequest& request,
                absl::Duration timeout, const MustEnd& must_end) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  for (const auto& [key, value] : endpoint.headers) context.AddMetadata(absl::AsciiStrToLower(key), value);
  if (endpoint.compresses) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  otlp::ExportTraceServiceResponse response;
  const auto end = std::make_shared<std::promise<grpc::Status>>();  // gRPC's thread may still hold it after the wait
  std::future<grpc::Status> ended = end->get_future();
  stub.UnaryCall(&context, kMethod, grpc::StubOptions(), &request, &response,
                 [end](grpc::Status status) { end->set_value(std::move(status)); });
  const absl::Time give_up = SteadyNow() + timeout;  // gRPC's own deadline may follow the system's clock
  while (ended.wait_for(kEndPeriod) != std::future_status::ready) {
    if (must_end() || SteadyNow() >= give_up) context.TryCancel();
  }
  const grpc::Status status = ended.get();
  if (!status.ok()) return FailureOf(status);
  const otlp::ExportTracePartialSuccess& partial = response.partial_success();
  return {.num_rejected_spans = static_cast<uint64_t>(std::max<int64_t>(0, partial.rejected_spans())),
          .message = partial.error_message()};
}

}  // namespace

absl::StatusOr<SendBatch> MakeGrpcSender(const Endpoint& endpoint) {
  absl::string_view address = endpoint.url;
  const bool is_secure = absl::ConsumePrefix(&address, "https://");
  absl::ConsumePrefix(&address, "http://");
  address = address.substr(0, address.find('/'));
  address = address.substr(address.rfind('@') + 1);  // a name and a password are not gRPC's way to log in
  FT_ASSIGN_OR_RETURN(const auto credentials,
                      rpc::ChannelCredentials(is_secure ? endpoint.tls : rpc::TlsFiles(), is_secure));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxResponseBytes);
  arguments.SetUserAgentPrefix(absl::StrCat("foretoken/", base::Version()));
  const auto stub = std::make_shared<Stub>(grpc::CreateCustomChannel(std::string(address), credentials, arguments));
  return [stub, endpoint](const otlp::ExportTraceServiceRequest& request, absl::Duration timeout,
                          const MustEnd& must_end) { return Send(*stub, endpoint, request, timeout, must_end); };
}

}  // namespace foretoken::tracing
