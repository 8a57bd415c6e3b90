// SPDX-License-Identifier: Apache-2.0
// A span: one named piece of a trace, with its begin and end. Plain data in OpenTelemetry's terms.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tracing/trace_context.h"

namespace foretoken::tracing {

using AttributeValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                    std::vector<std::string>>;

struct Attribute {
  Attribute(absl::string_view key, AttributeValue value);

  absl::string_view key;  // lives as long as the process
  AttributeValue value;
};
using Attributes = std::vector<Attribute>;

// The numbers are OTLP's.
enum class SpanKind {
  kInternal = 1,
  kServer = 2,  // handles a remote call
  kClient = 3,  // makes one
};

// Another span that this one has to do with, without being its child.
struct SpanLink {
  TraceContext context;
  bool is_remote = false;  // it is in another process
  Attributes attributes;
};

// The bounds of OpenTelemetry's specification. What goes beyond is dropped and counted; longer texts are cut.
struct SpanLimits {
  uint32_t max_attributes = 128;
  uint32_t max_links = 128;
  uint32_t max_link_attributes = 128;                                    // of each link
  uint32_t max_value_characters = std::numeric_limits<uint32_t>::max();  // of each text in an attribute
};

struct Span {
  TraceContext context;
  std::optional<SpanId> parent;
  bool has_remote_parent = false;  // the parent is in another process
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  absl::Time begin, end;
  Attributes attributes;
  std::vector<SpanLink> links;
  uint32_t num_dropped_links = 0;    // beyond `links`
  std::optional<std::string> error;  // set: the operation failed, for this reason
};

}  // namespace foretoken::tracing
