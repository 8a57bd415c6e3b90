// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/console_sender.h"

#include <string>

#include "absl/strings/escaping.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"

namespace foretoken::tracing {
namespace {

// OTLP's JSON has ids in hexadecimal, where protobuf's has them in base64.
void IdsToHex(nlohmann::json& span_or_link) {
  for (const char* key : {"traceId", "spanId", "parentSpanId"}) {
    std::string bytes;
    if (!span_or_link.contains(key)) continue;
    FT_CHECK(absl::Base64Unescape(span_or_link[key].get<std::string>(), &bytes));
    span_or_link[key] = absl::BytesToHexString(bytes);
  }
}

std::string ToJson(const otlp::ExportTraceServiceRequest& request) {
  std::string text;
  FT_CHECK(google::protobuf::util::MessageToJsonString(request, &text).ok());
  nlohmann::json json = nlohmann::json::parse(text);
  for (nlohmann::json& process : json["resourceSpans"]) {
    for (nlohmann::json& scope : process["scopeSpans"]) {
      for (nlohmann::json& span : scope["spans"]) {
        IdsToHex(span);
        if (!span.contains("links")) continue;
        for (nlohmann::json& link : span["links"]) IdsToHex(link);
      }
    }
  }
  return json.dump();
}

}  // namespace

SendBatch MakeConsoleSender(std::ostream& out) {
  return [&out](const otlp::ExportTraceServiceRequest& request, absl::Duration, const MustEnd&) {
    out << ToJson(request) << std::endl;
    return SendResult();
  };
}

}  // namespace foretoken::tracing
