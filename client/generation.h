// SPDX-License-Identifier: Apache-2.0
// The collected output of one Generate call: the sum of its messages.
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
  std::vector<bool> speculated;                           // [T]; empty if the server does not send it
  std::vector<uint32_t> text_ends;                        // [T] bytes of text; empty if the server does not send it
  std::vector<foretoken::v1::PositionLogprobs> logprobs;  // [T]; empty unless requested
  std::vector<foretoken::v1::StepReport> steps;           // empty unless requested
  std::optional<foretoken::v1::Completion> completion;    // from the sample's last message
};

struct Generation {
  std::string request_id;
  std::optional<foretoken::v1::PromptOutput> prompt;
  std::vector<Sample> samples;  // by sample index
};

// Checks that a report refers only to its own entries, and that its tree is not larger than a server's. INTERNAL, with
// the field, expected and got: arrays of different lengths, too many nodes, a node that is too deep, a parent that does
// not stand before its children, or an accepted node that the tree does not have.
absl::Status CheckStep(const foretoken::v1::StepReport& step);

// Adds a message. INTERNAL, with the field, expected and got, if the message breaks the protocol: a sample index out of
// range, parallel arrays of different lengths, text ends that fall or lie inside a character, a report that fails
// CheckStep, or anything after a sample's completion.
absl::Status Append(const foretoken::v1::GenerateResponse& response, Generation& generation);

// INTERNAL if one of `num_samples` samples lacks its completion, or if there are more.
absl::Status CheckComplete(const Generation& generation, int num_samples);

}  // namespace foretoken::client
