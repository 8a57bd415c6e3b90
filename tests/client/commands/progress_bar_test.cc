// SPDX-License-Identifier: Apache-2.0
// If this test fails, `foretoken bench` shows wrong progress.
#include "client/commands/progress_bar.h"

#include <gtest/gtest.h>

namespace foretoken::client {
namespace {

TEST(ProgressLine, FillsWithFinishedRequests) {
  EXPECT_EQ(ProgressLine(1, 4, 96), "[##########------------------------------] 1/4 requests, 96 tokens");
  EXPECT_EQ(ProgressLine(4, 4, 384), "[########################################] 4/4 requests, 384 tokens");
}

}  // namespace
}  // namespace foretoken::client
