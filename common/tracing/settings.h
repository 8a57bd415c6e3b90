// SPDX-License-Identifier: Apache-2.0
// Where traces go and which ones: the standard OTEL_* variables, so that operators configure this service as any other.
//
//   std::vector<std::string> warnings;
//   const Settings settings = ReadSettings([](const char* name) { return std::getenv(name); }, "foretoken_verifier",
//                                          &warnings);
//
// An empty variable counts as unset. A value that cannot be read is ignored, and a warning names it. Without an
// endpoint nothing is exported: a server should not try a collector that nobody named. OTEL_TRACES_EXPORTER=otlp
// without an endpoint means OpenTelemetry's default, localhost.
//
// Source: OpenTelemetry specification, "Environment Variable Specification" and "OTLP Exporter".
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/tls.h"
#include "common/tracing/sampler.h"
#include "common/tracing/span.h"

namespace foretoken::tracing {

enum class Protocol { kGrpc, kHttpProtobuf };

// The collector, and how it is reached.
struct Endpoint {
  Protocol protocol = Protocol::kGrpc;
  std::string url;  // http://HOST:PORT[/PATH] or https://...; empty: no traces are exported
  std::vector<std::pair<std::string, std::string>> headers;  // secret: never logged
  bool compresses = false;                                   // with gzip
  absl::Duration timeout = absl::Seconds(10);                // of one try; infinite: the batch's own counts
  rpc::TlsFiles tls;                                         // of https; empty: the system's authorities
};

// Spans wait in a queue and leave it in batches.
struct BatchLimits {
  absl::Duration delay = absl::Seconds(5);            // a batch waits so long for more spans
  absl::Duration export_timeout = absl::Seconds(30);  // of a batch with all its tries; finite
  absl::Duration first_pause = absl::Seconds(1);      // before the second try
  size_t max_queued_spans = 2048;                     // further ones are dropped and counted
  size_t max_batch_spans = 512;
};

struct Settings {
  Endpoint endpoint;
  bool writes_to_console = false;  // instead of an endpoint
  bool propagates = true;          // takes the callers' trace contexts and passes them on
  BatchLimits batch;
  SpanLimits limits;
  Sampler sampler;
  std::map<std::string, std::string> resource;  // of every span of this process: service.name and others
};

using ReadVariable = std::function<const char*(const char* name)>;  // null: unset

Settings ReadSettings(const ReadVariable& read, const std::string& service_name, std::vector<std::string>* warnings);

}  // namespace foretoken::tracing
