// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/console_sender.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/steady_clock.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"

namespace foretoken::tracing {
namespace {

constexpr int kPollMs = 100;

// OTLP's JSON has ids in hexadecimal, where protobuf's has them in base64.
void IdsToHex(nlohmann::json& span_or_link) {
  for (const char* key : {"traceId", "spanId", "parentSpanId"}) {
    std::string bytes;
    if (!span_or_link.contains(key)) continue;
    FT_CHECK(absl::Base64Unescape(span_or_link[key].get<std::string>(), &bytes));
    span_or_link[key] = absl::BytesToHexString(bytes);
  }
}

nlohmann::json ToJson(const google::protobuf::Message& message) {
  std::string text;
  FT_CHECK(google::protobuf::util::MessageToJsonString(message, &text).ok());
  return nlohmann::json::parse(text);
}

nlohmann::json SpanToJson(const std::string& encoded) {
  otlp::Span span;
  FT_CHECK(span.ParseFromString(encoded));
  nlohmann::json json = ToJson(span);
  IdsToHex(json);
  if (json.contains("links")) {
    for (nlohmann::json& link : json["links"]) IdsToHex(link);
  }
  return json;
}

std::string ToLine(const otlp::ExportTraceServiceRequest& request) {
  nlohmann::json json = ToJson(request);
  for (nlohmann::json& process : json["resourceSpans"]) {
    for (nlohmann::json& scope : process["scopeSpans"]) {
      for (nlohmann::json& span : scope["spans"]) {
        std::string encoded;
        FT_CHECK(absl::Base64Unescape(span.get<std::string>(), &encoded));
        span = SpanToJson(encoded);
      }
    }
  }
  return json.dump();
}

SendResult Refused(const char* why) { return {.outcome = SendResult::Outcome::kRefused, .message = why}; }

SendResult Write(int fd, absl::string_view text, absl::Duration timeout, const MustEnd& must_end) {
  const absl::Time give_up = SteadyNow() + timeout;
  while (!text.empty()) {
    if (SteadyNow() >= give_up || must_end()) return Refused("the output takes no more");
    pollfd output = {.fd = fd, .events = POLLOUT, .revents = 0};
    if (poll(&output, 1, kPollMs) <= 0) continue;
    // A pipe that is ready takes so many bytes without a wait.
    const ssize_t num_written = write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (num_written < 0 && errno != EINTR && errno != EAGAIN) return Refused(std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(num_written, 0)));
  }
  return {};
}

}  // namespace

SendBatch MakeConsoleSender(int fd) {
  return [fd, must_begin_a_line = false](const otlp::ExportTraceServiceRequest& request, absl::Duration timeout,
                                         const MustEnd& must_end) mutable {
    const std::string line = absl::StrCat(must_begin_a_line ? "\n" : "", ToLine(request), "\n");
    SendResult result = Write(fd, line, timeout, must_end);
    must_begin_a_line = result.outcome != SendResult::Outcome::kDelivered;
    return result;
  };
}

}  // namespace foretoken::tracing
