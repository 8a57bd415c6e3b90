// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/answer.h"

#include <algorithm>

#include "common/tracing/gzip.h"

namespace foretoken::tracing {

SendResult ReadAnswer(const std::string& bytes) {
  // No header has to say that the bytes are gzip. Its first byte, 0x1f, would be field 3 with wire type 7, and protobuf
  // has no such type.
  const std::string plain = IsGzip(bytes) ? Gunzip(bytes, kMaxResponseBytes + 1).value_or(bytes) : bytes;
  if (plain.size() > kMaxResponseBytes) return TooLongAnswer();
  otlp::ExportTraceServiceResponse response;
  if (!response.ParseFromString(plain)) return {.message = "(an answer that is not OTLP's: is it a collector?)"};
  const otlp::ExportTracePartialSuccess& partial = response.partial_success();
  return {.num_rejected_spans = static_cast<uint64_t>(std::max<int64_t>(0, partial.rejected_spans())),
          .message = partial.error_message()};
}

SendResult TooLongAnswer() { return {.outcome = SendResult::Outcome::kRefused, .message = "the answer is too long"}; }

}  // namespace foretoken::tracing
