// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/trace_context.h"

#include <algorithm>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace foretoken::tracing {
namespace {

constexpr size_t kTraceparentBytes = 55;
constexpr size_t kMaxTracestateMembers = 32;
constexpr size_t kMaxStateKeyBytes = 256, kMaxStateValueBytes = 256;

bool IsLowerHex(absl::string_view text) {
  return std::ranges::all_of(text, [](char c) { return absl::ascii_isxdigit(c) && !absl::ascii_isupper(c); });
}

// `hex` has two digits per byte.
void FromHex(absl::string_view hex, std::span<uint8_t> bytes) {
  const std::string raw = absl::HexStringToBytes(hex);
  std::ranges::copy(raw, bytes.begin());
}

std::string ToHex(std::span<const uint8_t> bytes) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool IsZero(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

// key=value; the key begins with a lower-case letter or a digit.
bool IsStateMember(absl::string_view member) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(member, absl::MaxSplits('=', 1));
  const auto& [key, value] = parts;
  const auto is_key_char = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || absl::StrContains("_-*/@", absl::string_view(&c, 1));
  };
  const auto is_value_char = [](char c) { return c >= 0x20 && c <= 0x7E && c != ',' && c != '='; };
  return !key.empty() && key.size() <= kMaxStateKeyBytes && std::ranges::all_of(key, is_key_char) &&
         (absl::ascii_islower(key[0]) || absl::ascii_isdigit(key[0])) && !value.empty() &&
         value.size() <= kMaxStateValueBytes && std::ranges::all_of(value, is_value_char);
}

// Without the blanks and tabs that may stand around a member. Other white space ends a header.
absl::string_view Trimmed(absl::string_view text) {
  constexpr absl::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == absl::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool IsTracestate(absl::string_view state) {
  if (state.size() > kMaxTracestateBytes) return false;
  size_t num_members = 0;
  for (const absl::string_view part : absl::StrSplit(state, ',')) {
    const absl::string_view member = Trimmed(part);
    if (member.empty()) continue;
    if (++num_members > kMaxTracestateMembers || !IsStateMember(member)) return false;
  }
  return true;
}

}  // namespace

std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent, absl::string_view tracestate) {
  if (traceparent.size() < kTraceparentBytes) return std::nullopt;
  const absl::string_view version = traceparent.substr(0, 2), trace_id = traceparent.substr(3, 32),
                          span_id = traceparent.substr(36, 16), flags = traceparent.substr(53, 2);
  // A later version may have more fields behind another dash. Version ff does not exist.
  const bool has_more = traceparent.size() > kTraceparentBytes;
  if (has_more && (version == "00" || traceparent[kTraceparentBytes] != '-')) return std::nullopt;
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' || version == "ff") return std::nullopt;
  for (const absl::string_view field : {version, trace_id, span_id, flags}) {
    if (!IsLowerHex(field)) return std::nullopt;
  }
  TraceContext context;
  FromHex(trace_id, context.trace_id);
  FromHex(span_id, context.span_id);
  FromHex(flags, {&context.flags, 1});
  if (IsZero(context.trace_id) || IsZero(context.span_id)) return std::nullopt;
  context.flags &= TraceContext::kSampled | TraceContext::kRandom;  // other flags have no meaning in version 00
  if (IsTracestate(tracestate)) context.state = std::string(tracestate);
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  if (!context.is_set()) return {};
  return absl::StrCat("00-", ToHex(context.trace_id), "-", ToHex(context.span_id), "-", ToHex({&context.flags, 1}));
}

std::string FormatTraceId(const TraceId& trace_id) { return ToHex(trace_id); }

}  // namespace foretoken::tracing
