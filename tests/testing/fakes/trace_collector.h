// SPDX-License-Identifier: Apache-2.0
// A collector of OTLP traces by gRPC, on a loopback port. It parses what it got when it is asked, so it costs a bench
// on the same machine little.
//
//   TraceCollector collector;
//   setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url().c_str(), 1);
//   std::vector<CollectedSpan> spans = collector.spans();
#pragma once

#include <grpc/compression.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "otlp/traces.pb.h"

namespace foretoken::testing {

struct CollectedSpan {
  std::string service;  // service.name of its process
  otlp::Span span;

  // Null if the span has no such attribute.
  const otlp::AnyValue* Find(const std::string& key) const;
  int64_t Int(const std::string& key) const { return Find(key) == nullptr ? -1 : Find(key)->int_value(); }
  std::string Text(const std::string& key) const { return Find(key) == nullptr ? "" : Find(key)->string_value(); }
  int64_t nanos() const { return static_cast<int64_t>(span.end_time_unix_nano() - span.start_time_unix_nano()); }
};

class TraceCollector {
 public:
  // Decides the end of one export. Null: OK.
  using Answer = std::function<grpc::Status(otlp::ExportTraceServiceResponse* response)>;

  // Answers have this compression where it saves bytes, whatever the client accepts.
  explicit TraceCollector(
      Answer answer = nullptr,
      const std::shared_ptr<grpc::ServerCredentials>& credentials = grpc::InsecureServerCredentials(),
      grpc_compression_algorithm compression = GRPC_COMPRESS_NONE);
  ~TraceCollector();

  int port() const { return port_; }
  std::string url() const;
  // The spans that were accepted.
  std::vector<CollectedSpan> spans() const;

  // Called by gRPC.
  grpc::Status Take(const grpc::ByteBuffer& request, otlp::ExportTraceServiceResponse* response);

 private:
  class Service;

  const Answer answer_;
  mutable absl::Mutex mutex_;
  std::vector<grpc::ByteBuffer> requests_ ABSL_GUARDED_BY(mutex_);  // that were accepted
  int port_ = 0;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace foretoken::testing
