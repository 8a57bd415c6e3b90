// SPDX-License-Identifier: Apache-2.0
// The bound on unread output. If this test fails, clients that do not read can fill the server's memory, or the server
// ends the wrong call.
#include "verifier_service/api/unread_outputs.h"

#include <gtest/gtest.h>

#include <optional>

namespace foretoken::verifier {
namespace {

TEST(UnreadOutputs, CountsTheUnreadBytesOfEveryCall) {
  UnreadOutputs unread(100);
  unread.Set(1, 30);
  unread.Set(2, 20);
  unread.Set(1, 10);
  EXPECT_EQ(unread.totals().num_calls, 2);
  EXPECT_EQ(unread.totals().num_bytes, 30);
  unread.Set(1, 0);
  unread.Set(3, 0);
  EXPECT_EQ(unread.totals().num_calls, 1);
  EXPECT_EQ(unread.totals().num_bytes, 20);
}

TEST(UnreadOutputs, BeyondTheLimitNamesTheCallWithTheMost) {
  UnreadOutputs unread(100);
  EXPECT_EQ(unread.Set(1, 60), std::nullopt);
  EXPECT_EQ(unread.Set(2, 40), std::nullopt);
  EXPECT_EQ(unread.Set(3, 1), 1) << "not the call with the new output";
  unread.Set(1, 0);
  EXPECT_EQ(unread.Set(3, 59), std::nullopt);
  EXPECT_EQ(unread.Set(3, 61), 3);
}

}  // namespace
}  // namespace foretoken::verifier
