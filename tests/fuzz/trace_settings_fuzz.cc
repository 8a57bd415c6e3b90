// SPDX-License-Identifier: Apache-2.0
// Reads the input as OTEL_* variables, one NAME=VALUE per line. The settings stay within the ranges that the exporter
// relies on, whatever the variables say, and a batch of spans with them is a message that a collector can read.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/tracing/otlp.h"
#include "common/tracing/settings.h"
#include "kernels/check.h"

namespace foretoken::tracing {
namespace {

void CheckSettings(const Settings& settings) {
  const std::string& url = settings.endpoint.url;
  FT_CHECK(url.empty() || absl::StartsWith(url, "http://") || absl::StartsWith(url, "https://"));
  FT_CHECK(settings.endpoint.timeout > absl::ZeroDuration());
  for (const auto& [key, value] : settings.endpoint.headers) {
    for (const char c : key + value) FT_CHECK(c >= 0x20 && c <= 0x7E);
  }
  FT_CHECK(settings.batch.delay >= absl::ZeroDuration() && settings.batch.export_timeout > absl::ZeroDuration());
  FT_CHECK(settings.batch.max_batch_spans > 0);
  FT_CHECK(settings.batch.max_batch_spans <= settings.batch.max_queued_spans);
  const TraceId trace_id = {1};
  settings.sampler.Samples(std::nullopt, trace_id);
  settings.sampler.Samples(TraceContext{.trace_id = trace_id, .flags = TraceContext::kSampled}, trace_id);
}

void CheckBatch(const Settings& settings) {
  std::string span = EncodeSpan({.name = "span"}, settings.limits);
  FT_CHECK(otlp::Span().ParseFromString(span));
  const std::string batch = MakeRequest({&span, 1}, settings.resource).SerializeAsString();
  FT_CHECK(otlp::ExportTraceServiceRequest().ParseFromString(batch));  // fails for a text that is not UTF-8
}

}  // namespace
}  // namespace foretoken::tracing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken::tracing;
  std::map<std::string, std::string> variables;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), '\n')) {
    variables.insert(absl::StrSplit(line, absl::MaxSplits('=', 1)));
  }
  const ReadVariable read = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  std::vector<std::string> warnings;
  const Settings settings = ReadSettings(read, "service", &warnings);
  CheckSettings(settings);
  CheckBatch(settings);
  return 0;
}
