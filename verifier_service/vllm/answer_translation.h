// SPDX-License-Identifier: Apache-2.0
// Turns the output of one request, in messages of our protocol, into messages of vLLM's contract. A streaming request
// gets a chunk for every message with tokens, and after a sample's last chunk a `complete` that repeats it. Otherwise
// every sample gets one `complete` with all of its tokens. The translation holds them until every sample has ended and
// then sends them in the order of their indices, because gateways number samples by their order.
//
//   AnswerTranslation answers({.streams = true, .num_samples = 1, .num_prompt_tokens = 3});
//   answers.Add(response);
//   while (std::optional<engine_api::GenerateResponse> message = answers.Take()) Write(*message);
//
// The contract repeats the prompt's log-probabilities for every sample. The translation holds them once, and Take puts
// a copy into the message that it makes. So the caller takes a message when it can write it, and not before.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
  std::vector<int32_t> end_token_ids;    // the model's end-of-text tokens; empty if the request ignores them
};

class AnswerTranslation {
 public:
  explicit AnswerTranslation(const AnswerOptions& options);

  // Adds a part of the output. Take has returned all messages of the parts before.
  void Add(const v1::GenerateResponse& response);
  // Makes the next message; unset if there is none yet.
  std::optional<engine_api::GenerateResponse> Take();
  // Approximate size of what the translation holds.
  size_t num_held_bytes() const { return num_prompt_bytes_ + num_output_bytes_; }

 private:
  struct Sample {
    engine_api::GenerateResponse complete;  // without streaming: the output so far
    bool has_prompt = false;                // a message of it had the prompt's log-probabilities
  };

  void HoldPrompt(const v1::PromptOutput& prompt);
  // Adds the prompt's log-probabilities to the first message of the sample, if they were asked for.
  template <typename Message>
  void AddPrompt(Message& message);
  engine_api::GenerateResponse MakeChunk(const v1::GenerateResponse& response) const;
  void Complete(const v1::GenerateResponse& response, Sample& sample);

  const AnswerOptions options_;
  std::vector<Sample> samples_;                      // [num_samples]
  std::deque<engine_api::GenerateResponse> ready_;   // without the prompt's log-probabilities
  std::optional<engine_api::InputLogProbs> prompt_;  // until every sample has had it
  bool is_prompt_whole_ = false;
  int32_t num_ended_ = 0;
  size_t num_prompt_bytes_ = 0, num_output_bytes_ = 0;
};

}  // namespace foretoken::verifier
