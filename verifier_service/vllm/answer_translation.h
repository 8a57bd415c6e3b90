// SPDX-License-Identifier: Apache-2.0
// Turns the output of one request, in messages of our protocol, into messages of vLLM's contract. A streaming request
// gets a chunk for every message with tokens, and after a sample's last chunk a `complete` that repeats it. Otherwise
// every sample gets one `complete` with all of its tokens. The translation holds them until every sample has ended and
// then sends them in the order of their indices, because gateways number samples by their order.
//
//   AnswerTranslation answers({.streams = true, .num_samples = 1, .num_prompt_tokens = 3});
//   for (const engine_api::GenerateResponse& message : answers.Translate(response)) Write(message);
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "foretoken/v1/generation.pb.h"
#include "vllm/engine.pb.h"

namespace foretoken::verifier {

namespace engine_api = ::vllm::grpc::engine;

struct AnswerOptions {
  bool streams = false;
  int32_t num_samples = 1;
  uint32_t num_prompt_tokens = 0;
  bool has_top_logprobs = false;         // of generated tokens
  bool has_prompt_top_logprobs = false;  // of the prompt's
};

class AnswerTranslation {
 public:
  explicit AnswerTranslation(const AnswerOptions& options);

  std::vector<engine_api::GenerateResponse> Translate(const v1::GenerateResponse& response);
  // Approximate size of what the translation holds.
  size_t num_held_bytes() const { return num_held_bytes_; }

 private:
  struct Sample {
    engine_api::GenerateResponse complete;  // without streaming: the output so far
    bool has_prompt = false;                // its first message was made
  };

  void HoldPrompt(const v1::PromptOutput& prompt);
  // The prompt's log-probabilities for the sample's first message; null later, or if none were asked for.
  const engine_api::InputLogProbs* PromptFor(Sample& sample);
  engine_api::GenerateResponse MakeChunk(const v1::GenerateResponse& response, Sample& sample);
  void Complete(const v1::GenerateResponse& response, Sample& sample);
  std::vector<engine_api::GenerateResponse> TakeAll();

  const AnswerOptions options_;
  std::vector<Sample> samples_;                      // [num_samples]
  std::optional<engine_api::InputLogProbs> prompt_;  // until every sample has ended
  bool is_prompt_whole_ = false;
  int32_t num_ended_ = 0;
  size_t num_held_bytes_ = 0;
};

}  // namespace foretoken::verifier
