// SPDX-License-Identifier: Apache-2.0
// The collected output of one Generate call: what its messages, each a delta, add up to.
//
//   Generation generation;
//   for each response: FT_RETURN_IF_ERROR(Append(response, generation));
//   FT_RETURN_IF_ERROR(CheckComplete(generation, num_samples));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

inline constexpr int kMaxSamples = 64;

struct Sample {
  std::string text;
  std::vector<uint32_t> token_ids;                        // [T]
  std::vector<bool> speculated;                           // [T], empty where the server does not tell
  std::vector<uint32_t> text_ends;                        // [T] bytes of text, empty where the server does not tell
  std::vector<foretoken::v1::PositionLogprobs> logprobs;  // [T], empty unless asked for
  std::vector<foretoken::v1::StepReport> steps;           // empty unless asked for
  std::optional<foretoken::v1::Completion> completion;    // in the sample's last message
};

struct Generation {
  std::string request_id;
  std::optional<foretoken::v1::PromptOutput> prompt;
  std::vector<Sample> samples;  // by sample index
};

// That what stands in a report can be looked up in it: INTERNAL, naming the field, expected and got, for arrays of
// different lengths, parents that do not stand before their children, and accepted nodes that the tree does not have.
absl::Status CheckStep(const foretoken::v1::StepReport& step);

// INTERNAL, naming the field, expected and got, when the message breaks the protocol: a sample index out of range,
// parallel arrays of different lengths, text ends that fall, a report that CheckStep
// refuses, anything after a sample's completion.
absl::Status Append(const foretoken::v1::GenerateResponse& response, Generation& generation);

// INTERNAL when one of `num_samples` samples lacks its completion.
absl::Status CheckComplete(const Generation& generation, int num_samples);

}  // namespace foretoken::client
