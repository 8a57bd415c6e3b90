// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/otlp.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/utf8_bytes.h"
#include "common/base/version.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tracing {
namespace {

constexpr int32_t kStatusError = 2;
constexpr uint32_t kHasIsRemote = 0x100, kIsRemote = 0x200;

uint64_t UnixNanos(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixNanos(time)); }

// The first characters of a text in UTF-8.
std::string Cut(const std::string& text, uint32_t max_characters) {
  uint32_t num_characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!base::ContinuesCharacter(text[i]) && num_characters++ == max_characters) return text.substr(0, i);
  }
  return text;
}

void Convert(bool value, const SpanLimits&, otlp::AnyValue* out) { out->set_bool_value(value); }
void Convert(int64_t value, const SpanLimits&, otlp::AnyValue* out) { out->set_int_value(value); }
void Convert(double value, const SpanLimits&, otlp::AnyValue* out) { out->set_double_value(value); }
// A collector refuses a whole batch for one text that is not UTF-8, and clients and peers may send any bytes.
void Convert(const std::string& value, const SpanLimits& limits, otlp::AnyValue* out) {
  out->set_string_value(Cut(tokenizer::ValidUtf8(value), limits.max_value_characters));
}
template <typename Value>
void Convert(const std::vector<Value>& values, const SpanLimits& limits, otlp::AnyValue* out) {
  otlp::ArrayValue* const array = out->mutable_array_value();  // also set if there are no values
  for (const Value& value : values) Convert(value, limits, array->add_values());
}

// Returns the number of attributes that are left out.
uint32_t Convert(const Attributes& attributes, uint32_t max_attributes, const SpanLimits& limits,
                 google::protobuf::RepeatedPtrField<otlp::KeyValue>* out) {
  const size_t num_kept = std::min<size_t>(attributes.size(), max_attributes);
  for (size_t i = 0; i < num_kept; ++i) {
    otlp::KeyValue* const pair = out->Add();
    pair->set_key(attributes[i].key.data(), attributes[i].key.size());
    std::visit([&](const auto& value) { Convert(value, limits, pair->mutable_value()); }, attributes[i].value);
  }
  return static_cast<uint32_t>(attributes.size() - num_kept);
}

void Convert(const SpanLink& link, const SpanLimits& limits, otlp::Span::Link* out) {
  out->set_trace_id(link.context.trace_id.data(), link.context.trace_id.size());
  out->set_span_id(link.context.span_id.data(), link.context.span_id.size());
  out->set_trace_state(link.context.state);
  out->set_flags(link.context.flags | kHasIsRemote | (link.is_remote ? kIsRemote : 0));
  out->set_dropped_attributes_count(
      Convert(link.attributes, limits.max_link_attributes, limits, out->mutable_attributes()));
}

void Convert(const Span& span, const SpanLimits& limits, otlp::Span* out) {
  out->set_trace_id(span.context.trace_id.data(), span.context.trace_id.size());
  out->set_span_id(span.context.span_id.data(), span.context.span_id.size());
  out->set_trace_state(span.context.state);
  if (span.parent.has_value()) out->set_parent_span_id(span.parent->data(), span.parent->size());
  out->set_flags(span.context.flags | kHasIsRemote | (span.has_remote_parent ? kIsRemote : 0));
  out->set_name(tokenizer::ValidUtf8(span.name));
  out->set_kind(static_cast<int32_t>(span.kind));
  out->set_start_time_unix_nano(UnixNanos(span.begin));
  out->set_end_time_unix_nano(UnixNanos(std::max(span.begin, span.end)));
  out->set_dropped_attributes_count(Convert(span.attributes, limits.max_attributes, limits, out->mutable_attributes()));
  const size_t num_links = std::min<size_t>(span.links.size(), limits.max_links);
  for (size_t i = 0; i < num_links; ++i) Convert(span.links[i], limits, out->add_links());
  out->set_dropped_links_count(static_cast<uint32_t>(span.links.size() - num_links) + span.num_dropped_links);
  if (span.error.has_value()) {
    out->mutable_status()->set_code(kStatusError);
    out->mutable_status()->set_message(tokenizer::ValidUtf8(*span.error));
  }
}

}  // namespace

std::string EncodeSpan(const Span& span, const SpanLimits& limits) {
  // A span has dozens of small messages. The thread's next span fills the same ones.
  thread_local otlp::Span out;
  out.Clear();
  Convert(span, limits, &out);
  return out.SerializeAsString();
}

otlp::ExportTraceServiceRequest MakeRequest(std::span<std::string> spans,
                                            const std::map<std::string, std::string>& resource) {
  otlp::ExportTraceServiceRequest request;
  otlp::ResourceSpans* const of_process = request.add_resource_spans();
  for (const auto& [key, value] : resource) {
    otlp::KeyValue* const pair = of_process->mutable_resource()->add_attributes();
    pair->set_key(tokenizer::ValidUtf8(key));
    pair->mutable_value()->set_string_value(tokenizer::ValidUtf8(value));
  }
  otlp::ScopeSpans* const of_scope = of_process->add_scope_spans();
  of_scope->mutable_scope()->set_name("foretoken");
  of_scope->mutable_scope()->set_version(base::Version());
  for (std::string& span : spans) of_scope->add_spans(std::exchange(span, {}));
  return request;
}

std::string UserAgent() {
  return absl::StrCat("foretoken/", base::Version(), " OTel-OTLP-Exporter-Cpp/", base::Version());
}

}  // namespace foretoken::tracing
