// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/trace_collector.h"

#include <grpcpp/server_builder.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr char kExport[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

// One unary call over the generic service.
class ExportCall : public grpc::ServerGenericBidiReactor {
 public:
  explicit ExportCall(TraceCollector& collector) : collector_(collector) { StartRead(&message_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
    otlp::ExportTraceServiceResponse response;
    const grpc::Status status = collector_.Take(message_, &response);
    if (!status.ok()) return Finish(status);
    message_.Clear();  // gRPC serialises a message into an empty buffer only
    bool owns_buffer;
    grpc::SerializationTraits<otlp::ExportTraceServiceResponse>::Serialize(response, &message_, &owns_buffer);
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

  TraceCollector& collector_;
  grpc::ByteBuffer message_;
};

class UnknownCall : public grpc::ServerGenericBidiReactor {
 public:
  UnknownCall() { Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "expected an export of traces")); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

class TraceCollector::Service : public grpc::CallbackGenericService {
 public:
  Service(TraceCollector& collector, grpc_compression_algorithm compression)
      : collector_(collector), compression_(compression) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kExport) return new UnknownCall();
    context->set_compression_algorithm(compression_);
    return new ExportCall(collector_);
  }

 private:
  TraceCollector& collector_;
  const grpc_compression_algorithm compression_;
};

const otlp::AnyValue* CollectedSpan::Find(const std::string& key) const {
  const auto found = std::ranges::find(span.attributes(), key, &otlp::KeyValue::key);
  return found == span.attributes().end() ? nullptr : &found->value();
}

TraceCollector::TraceCollector(Answer answer, const std::shared_ptr<grpc::ServerCredentials>& credentials,
                               grpc_compression_algorithm compression)
    : answer_(std::move(answer)), service_(std::make_unique<Service>(*this, compression)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
}

TraceCollector::~TraceCollector() { server_->Shutdown(std::chrono::system_clock::now()); }

std::string TraceCollector::url() const { return absl::StrCat("http://127.0.0.1:", port_); }

grpc::Status TraceCollector::Take(const grpc::ByteBuffer& request, otlp::ExportTraceServiceResponse* response) {
  absl::MutexLock lock(&mutex_);
  const grpc::Status status = answer_ == nullptr ? grpc::Status::OK : answer_(response);
  if (status.ok()) requests_.push_back(request);
  return status;
}

std::vector<CollectedSpan> TraceCollector::spans() const {
  std::vector<CollectedSpan> spans;
  absl::MutexLock lock(&mutex_);
  for (grpc::ByteBuffer bytes : requests_) {  // a copy of references: parsing empties the buffer
    otlp::ExportTraceServiceRequest request;
    FT_CHECK(grpc::SerializationTraits<otlp::ExportTraceServiceRequest>::Deserialize(&bytes, &request).ok());
    for (const otlp::ResourceSpans& process : request.resource_spans()) {
      std::string service;
      for (const otlp::KeyValue& attribute : process.resource().attributes()) {
        if (attribute.key() == "service.name") service = attribute.value().string_value();
      }
      for (const otlp::ScopeSpans& scope : process.scope_spans()) {
        for (const std::string& encoded : scope.spans()) {
          FT_CHECK(spans.emplace_back(CollectedSpan{.service = service}).span.ParseFromString(encoded));
        }
      }
    }
  }
  return spans;
}

}  // namespace foretoken::testing
