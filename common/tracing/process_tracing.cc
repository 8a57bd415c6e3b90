// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/process_tracing.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "common/base/error_text.h"
#include "common/base/system_random.h"
#include "common/tracing/console_sender.h"
#include "common/tracing/grpc_sender.h"
#include "common/tracing/http_sender.h"
#include "common/tracing/settings.h"
#include "spdlog/spdlog.h"

namespace foretoken::tracing {
namespace {

// Without the parts that may be secret: a name and a password before the host, and a query. A password may have a '/',
// '?' or '#' in place of its escape; then nothing tells where the host begins.
std::string ShownUrl(const std::string& url) {
  const size_t host = url.find("://") + 3;
  const size_t end = std::min(url.find_first_of("/?#", host), url.size());
  if (url.find('@', end) != std::string::npos) return url.substr(0, host) + "...";
  const std::string shown = url.substr(0, url.find_first_of("?#", host));
  const size_t at = shown.substr(0, end).rfind('@');
  return at == std::string::npos ? shown : shown.substr(0, host) + shown.substr(at + 1);
}

// Null: nobody wants the spans, or the exporter's files cannot be used. Without its own files an exporter would send
// the spans, and the secrets in their headers, to a collector that the operator did not mean.
SendBatch MakeSender(const Settings& settings) {
  if (settings.writes_to_console) return MakeConsoleSender(STDOUT_FILENO);
  if (settings.endpoint.url.empty()) return SendBatch();
  const bool is_grpc = settings.endpoint.protocol == Protocol::kGrpc;
  absl::StatusOr<SendBatch> send = is_grpc ? MakeGrpcSender(settings.endpoint) : MakeHttpSender(settings.endpoint);
  if (!send.ok()) {
    spdlog::warn(
        "no traces are sent, because of OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE or _CLIENT_KEY: {}",
        std::string(send.status().message()));
    return SendBatch();
  }
  spdlog::info("traces go to {}, by {}", base::Quoted(ShownUrl(settings.endpoint.url)), is_grpc ? "gRPC" : "HTTP");
  return *std::move(send);
}

}  // namespace

std::unique_ptr<ProcessTracing> ProcessTracing::Start(const std::string& service_name, telemetry::Metrics& metrics) {
  std::vector<std::string> warnings;
  const Settings settings = ReadSettings([](const char* name) { return std::getenv(name); }, service_name, &warnings);
  for (const std::string& warning : warnings) spdlog::warn("{}", warning);
  std::unique_ptr<ProcessTracing> tracing(new ProcessTracing());
  if (SendBatch send = MakeSender(settings); send != nullptr) {
    tracing->exporter_ = std::make_unique<SpanExporter>(settings, std::move(send), base::SystemRandomBits, metrics);
    tracing->tracer_ = Tracer(settings.sampler, base::SystemRandomBits,
                              [process = tracing.get()](Span span) { process->Export(std::move(span)); });
  }
  if (!settings.propagates) tracing->tracer_.StopPropagation();
  return tracing;
}

void ProcessTracing::Export(Span span) {
  if (exporter_ != nullptr) exporter_->Add(std::move(span));
}

}  // namespace foretoken::tracing
