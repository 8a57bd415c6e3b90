// SPDX-License-Identifier: Apache-2.0
// If this test fails, a flag of the request takes the input that a command reads itself.
#include "client/commands/request_flags.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"

ABSL_DECLARE_FLAG(std::string, prediction_file);

namespace foretoken::client {
namespace {

TEST(RequestFromFlags, LeavesStandardInputToACommandThatReadsIt) {
  const absl::FlagSaver saver;
  EXPECT_TRUE(RequestFromFlags("the messages").ok());
  absl::SetFlag(&FLAGS_prediction_file, "-");
  EXPECT_EQ(RequestFromFlags("the messages").status(),
            absl::InvalidArgumentError(
                "--prediction_file: expected a file, got standard input, which is read for the messages"));
}

}  // namespace
}  // namespace foretoken::client
