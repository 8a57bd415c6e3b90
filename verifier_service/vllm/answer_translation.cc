// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/answer_translation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

void AddTop(const v1::PositionLogprobs& from, engine_api::TopLogProbs& to) {
  for (const v1::TokenLogprob& top : from.top()) {
    to.add_token_ids(top.token_id());
    to.add_values(top.logprob());
  }
}

void AddLogprobs(const v1::GenerateResponse& from, bool has_top, engine_api::OutputLogProbs& to) {
  for (const v1::PositionLogprobs& position : from.logprobs()) {
    to.add_token_ids(position.token().token_id());
    to.add_token_logprobs(position.token().logprob());
    if (has_top) AddTop(position, *to.add_top_logprobs());
  }
}

std::string ReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "abort";
  }
}

// Fills what a message says at a sample's end, beside its tokens. An end-of-text token is no matched stop in this
// contract, also where the request lists it as one.
void AddCompletion(const v1::Completion& from, const std::vector<int32_t>& end_token_ids,
                   engine_api::GenerateComplete& to) {
  const v1::Usage& usage = from.usage();
  to.set_finish_reason(ReasonName(from.finish_reason()));
  const auto end = std::ranges::find(end_token_ids, static_cast<int32_t>(from.matched_stop_token_id()));
  if (from.has_matched_stop_token_id() && end == end_token_ids.end()) {
    to.set_matched_token_id(from.matched_stop_token_id());
  }
  if (from.has_matched_stop_string()) to.set_matched_stop_str(from.matched_stop_string());
  to.set_prompt_tokens(usage.prompt_tokens());
  to.set_cached_tokens(usage.cached_tokens());
  uint64_t num_accepted = 0;
  for (int length = 0; length < usage.accepted_lengths_size(); ++length) {
    num_accepted += static_cast<uint64_t>(length) * usage.accepted_lengths(length);
  }
  to.set_spec_accepted_tokens(static_cast<uint32_t>(num_accepted));
  // Rejection sampling can accept a guess that no row verified.
  to.set_spec_draft_tokens(static_cast<uint32_t>(std::max<uint64_t>(num_accepted, usage.verified_nodes())));
}

}  // namespace

AnswerTranslation::AnswerTranslation(const AnswerOptions& options)
    : options_(options), samples_(static_cast<size_t>(options.num_samples)) {}

void AnswerTranslation::HoldPrompt(const v1::PromptOutput& prompt) {
  if (!prompt_) prompt_.emplace();
  // The prompt comes in pieces. Each has a log-probability for every token but the prompt's first one.
  const int num_without = prompt.token_ids_size() - prompt.logprobs_size();
  for (int i = 0; i < prompt.token_ids_size(); ++i) {
    engine_api::InputTokenLogProb& own = *prompt_->add_token_logprobs();
    prompt_->add_token_ids(prompt.token_ids(i));
    engine_api::TopLogProbs* const top = options_.has_prompt_top_logprobs ? prompt_->add_top_logprobs() : nullptr;
    if (i < num_without) continue;
    const v1::PositionLogprobs& position = prompt.logprobs(i - num_without);
    own.set_value(position.token().logprob());
    if (top != nullptr) AddTop(position, *top);
  }
  is_prompt_whole_ = !prompt.awaiting_more();
  num_prompt_bytes_ += prompt.ByteSizeLong();
}

template <typename Message>
void AnswerTranslation::AddPrompt(Message& message) {
  if (!is_prompt_whole_ || std::exchange(samples_[message.index()].has_prompt, true)) return;
  *message.mutable_input_logprobs() = *prompt_;
}

engine_api::GenerateResponse AnswerTranslation::MakeChunk(const v1::GenerateResponse& response) const {
  engine_api::GenerateResponse made;
  engine_api::GenerateStreamChunk& chunk = *made.mutable_chunk();
  chunk.set_index(response.sample_index());
  *chunk.mutable_token_ids() = response.token_ids();
  chunk.set_prompt_tokens(options_.num_prompt_tokens);
  chunk.set_completion_tokens(static_cast<uint32_t>(response.token_ids_size()));
  chunk.set_cached_tokens(response.completion().usage().cached_tokens());
  if (response.logprobs_size() > 0) {
    AddLogprobs(response, options_.has_top_logprobs, *chunk.mutable_output_logprobs());
  }
  return made;
}

// Appends the part to the sample's `complete`, and ends it.
void AnswerTranslation::Complete(const v1::GenerateResponse& response, Sample& sample) {
  engine_api::GenerateComplete& complete = *sample.complete.mutable_complete();
  engine_api::GenerateComplete part;
  *part.mutable_output_ids() = response.token_ids();
  if (response.logprobs_size() > 0) AddLogprobs(response, options_.has_top_logprobs, *part.mutable_output_logprobs());
  complete.MergeFrom(part);
  if (!options_.streams) num_output_bytes_ += part.ByteSizeLong();
  if (!response.has_completion()) return;
  ++num_ended_;
  complete.set_index(response.sample_index());
  complete.set_completion_tokens(static_cast<uint32_t>(complete.output_ids_size()));
  AddCompletion(response.completion(), options_.end_token_ids, complete);
}

void AnswerTranslation::Add(const v1::GenerateResponse& response) {
  FT_CHECK(ready_.empty());
  if (response.has_prompt()) return HoldPrompt(response.prompt());
  FT_CHECK(response.sample_index() < samples_.size());
  Sample& sample = samples_[response.sample_index()];
  const bool has_end = response.has_completion();
  if (options_.streams) {
    if (response.token_ids_size() > 0 || has_end) ready_.push_back(MakeChunk(response));
    if (!has_end) return;
    Complete(response, sample);
    ready_.push_back(std::move(sample.complete));
  } else {
    Complete(response, sample);
    if (num_ended_ < options_.num_samples) return;
    for (Sample& ended : samples_) ready_.push_back(std::move(ended.complete));
  }
}

std::optional<engine_api::GenerateResponse> AnswerTranslation::Take() {
  if (ready_.empty()) return std::nullopt;
  engine_api::GenerateResponse message = std::move(ready_.front());
  ready_.pop_front();
  message.has_chunk() ? AddPrompt(*message.mutable_chunk()) : AddPrompt(*message.mutable_complete());
  if (std::ranges::all_of(samples_, &Sample::has_prompt)) {
    prompt_.reset();
    num_prompt_bytes_ = 0;
  }
  if (ready_.empty() && num_ended_ == options_.num_samples) num_output_bytes_ = 0;
  return message;
}

}  // namespace foretoken::verifier
