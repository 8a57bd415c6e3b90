// SPDX-License-Identifier: Apache-2.0
// The answers of a collector. If this test fails, spans that a collector rejected count as exported, or its answer
// costs the batch.
#include "common/tracing/answer.h"

#include "common/tracing/gzip.h"
#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

using Outcome = SendResult::Outcome;

std::string PartialSuccess(int64_t num_rejected, const std::string& message) {
  otlp::ExportTraceServiceResponse response;
  response.mutable_partial_success()->set_rejected_spans(num_rejected);
  response.mutable_partial_success()->set_error_message(message);
  return response.SerializeAsString();
}

TEST(Answer, IsReadPlainAndCompressed) {
  const std::string plain = PartialSuccess(3, "bad");
  for (const std::string& bytes : {plain, Gzip(plain)}) {
    const SendResult result = ReadAnswer(bytes);
    EXPECT_EQ(result.outcome, Outcome::kDelivered);
    EXPECT_EQ(result.num_rejected_spans, 3u);
    EXPECT_EQ(result.message, "bad");
  }
  EXPECT_EQ(ReadAnswer(PartialSuccess(-1, "")).num_rejected_spans, 0u);
}

TEST(Answer, AMessageThatIsNotUtf8CostsNoCount) {
  const SendResult result = ReadAnswer(PartialSuccess(3, "caf\xE9"));
  EXPECT_EQ(result.num_rejected_spans, 3u);
  EXPECT_EQ(result.message, "caf\xE9");
}

TEST(Answer, ThatCannotBeReadIsOfADeliveredBatchAndIsToldOf) {
  for (const std::string& bytes : {std::string("<html>"), std::string("{}"), std::string("\x1f\x8b{}")}) {
    const SendResult result = ReadAnswer(bytes);
    EXPECT_EQ(result.outcome, Outcome::kDelivered);
    EXPECT_EQ(result.num_rejected_spans, 0u);
    EXPECT_EQ(result.message, "(an answer that is not OTLP's: is it a collector?)");
  }
  EXPECT_EQ(ReadAnswer("").message, "") << "an empty message, as most collectors send it";
}

TEST(Answer, ThatInflatesTooMuchIsNotRead) {
  const SendResult result = ReadAnswer(Gzip(PartialSuccess(3, std::string(64 << 20, 'x'))));
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_EQ(result.message, "the answer is too long");
}

}  // namespace
}  // namespace foretoken::tracing
