// SPDX-License-Identifier: Apache-2.0
#include "client/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateResponse;
using ::testing::HasSubstr;

// Expects that a message is refused with a text that names what is wrong.
void ExpectInternal(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(what));
}

TEST(Append, KeepsThePromptApartFromTheSamples) {
  GenerateResponse response;
  response.mutable_prompt()->set_text("the prompt");
  Generation generation;
  EXPECT_TRUE(Append(response, generation).ok());
  EXPECT_EQ(generation.prompt->text(), "the prompt");
  EXPECT_TRUE(generation.samples.empty());
}

TEST(Append, RefusesASampleIndexOutOfRange) {
  GenerateResponse response;
  response.set_sample_index(kMaxSamples);
  Generation generation;
  ExpectInternal(Append(response, generation), "sample_index 64");
}

TEST(Append, RefusesParallelArraysOfDifferentLengths) {
  GenerateResponse response;
  response.add_token_ids(1);
  response.add_token_ids(2);
  Generation generation;
  GenerateResponse speculated = response;
  speculated.add_speculated(true);
  ExpectInternal(Append(speculated, generation), "1 entries of speculated for 2 token_ids");
  GenerateResponse text_ends = response;
  text_ends.add_text_ends(1);
  ExpectInternal(Append(text_ends, generation), "text_ends");
  GenerateResponse logprobs = response;
  logprobs.add_logprobs();
  ExpectInternal(Append(logprobs, generation), "logprobs");
}

TEST(Append, RefusesTextEndsThatFallAcrossMessages) {
  GenerateResponse response;
  response.add_token_ids(1);
  response.add_text_ends(5);
  Generation generation;
  EXPECT_TRUE(Append(response, generation).ok());
  response.set_text_ends(0, 4);
  ExpectInternal(Append(response, generation), "fall from 5 to 4");
}

TEST(Append, RefusesOutputAfterTheCompletion) {
  GenerateResponse response;
  response.add_token_ids(1);
  response.mutable_completion();
  Generation generation;
  EXPECT_TRUE(Append(response, generation).ok());
  ExpectInternal(Append(response, generation), "after its completion");
}

}  // namespace
}  // namespace foretoken::client
