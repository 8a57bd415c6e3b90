// SPDX-License-Identifier: Apache-2.0
// Reads the input as the two headers of a trace: the traceparent, a line feed, and the tracestate. A context that is
// read and written comes back equal.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/tracing/trace_context.h"
#include "kernels/check.h"

namespace foretoken::tracing {
namespace {

constexpr size_t kMaxStateBytes = 512;

void CheckHeaders(absl::string_view traceparent, absl::string_view tracestate) {
  const std::optional<TraceContext> context = ParseTraceContext(traceparent, tracestate);
  if (!context.has_value()) return;
  FT_CHECK(context->is_set());
  FT_CHECK(context->state.empty() || context->state == tracestate);
  FT_CHECK(context->state.size() <= kMaxStateBytes);
  for (const char c : context->state) FT_CHECK((c >= 0x20 && c <= 0x7E) || c == '\t');
  const std::optional<TraceContext> again = ParseTraceContext(FormatTraceparent(*context), context->state);
  FT_CHECK(again.has_value() && *again == *context);
}

}  // namespace
}  // namespace foretoken::tracing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::pair<absl::string_view, absl::string_view> headers = absl::StrSplit(input, absl::MaxSplits('\n', 1));
  foretoken::tracing::CheckHeaders(headers.first, headers.second);
  return 0;
}
