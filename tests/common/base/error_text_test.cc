// SPDX-License-Identifier: Apache-2.0
// Foreign text in errors, and the reasons of errors. If this test fails, a client or a peer can forge log lines, or a
// program cannot tell one error from another.
#include "common/base/error_text.h"

#include "gtest/gtest.h"

namespace foretoken::base {
namespace {

TEST(Quoted, KeepsAnHonestNameReadable) { EXPECT_EQ(Quoted("llama-3 8B"), "\"llama-3 8B\""); }

TEST(Quoted, IsOneLineOfAscii) {
  EXPECT_EQ(Quoted("a\n\"b\"\x1b[2J"), "\"a\\n\\\"b\\\"\\x1b[2J\"");
  EXPECT_EQ(Quoted("\xc3\xbc\xff"), "\"\\xc3\\xbc\\xff\"");
}

TEST(Quoted, ShowsTheBeginningOfALongText) {
  const std::string quoted = Quoted(std::string(1 << 20, 'x'));
  EXPECT_EQ(quoted, "\"" + std::string(kMaxQuotedBytes, 'x') + "...\" of 1048576 bytes");
  EXPECT_EQ(Quoted(std::string(kMaxQuotedBytes, 'x')), "\"" + std::string(kMaxQuotedBytes, 'x') + "\"");
}

TEST(Reason, TravelsWithTheStatus) {
  const absl::Status status = WithReason(absl::NotFoundError("why"), "MODEL_NOT_FOUND");
  EXPECT_EQ(status.message(), "why");
  EXPECT_EQ(ReasonOf(status), "MODEL_NOT_FOUND");
}

TEST(Reason, IsTheCodesNameWhereNoneIsGiven) {
  EXPECT_EQ(ReasonOf(absl::FailedPreconditionError("why")), "FAILED_PRECONDITION");
  EXPECT_TRUE(WithReason(absl::OkStatus(), "NONE").ok());
}

TEST(Field, TravelsWithTheStatus) {
  EXPECT_EQ(FieldOf(WithField(absl::InvalidArgumentError("model: why"), "model")), "model");
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("why")), "");
}

}  // namespace
}  // namespace foretoken::base
