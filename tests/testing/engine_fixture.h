// SPDX-License-Identifier: Apache-2.0
// A fixture for tests that run the engine on the demo model, step by step, and collect the output of a client.
//
//   class EngineTest : public testing::EngineFixture {};
//   TEST_F(EngineTest, ...) {
//     InProcessProposers none;
//     const Results truth = Generate({Request("import os\n", 0.8f)}, none);
//
// All tests of a suite share one model. Every engine has its own K/V cache.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::testing {

// Tokens and the bits of their log-probabilities: first the drawn token, then the most likely tokens.
using LogprobBits = std::vector<std::pair<int32_t, uint32_t>>;

inline LogprobBits BitsOf(const kernels::RowLogprobs& logprobs) {
  LogprobBits bits = {{logprobs.token.token_id, std::bit_cast<uint32_t>(logprobs.token.logprob)}};
  for (const auto& top : logprobs.top) bits.push_back({top.token_id, std::bit_cast<uint32_t>(top.logprob)});
  return bits;
}

// All output that must not depend on anything beside the request.
struct Result {
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<LogprobBits> logprobs;
  std::vector<LogprobBits> prompt_logprobs;
  std::optional<verifier::FinishReason> finish_reason;
  std::optional<std::string> matched_stop_string;
  std::optional<int32_t> matched_stop_token_id;
  absl::Status error;

  friend bool operator==(const Result& a, const Result& b) = default;
};

inline std::ostream& operator<<(std::ostream& out, const Result& result) {
  return out << ::testing::PrintToString(result.token_ids) << " " << result.text << " " << result.error;
}

using SampleKey = std::pair<verifier::Ticket, int32_t>;
using Results = std::map<SampleKey, Result>;

// A clock that advances by the same time at every reading, so that all steps seem to take equally long. The planner
// then takes every guess that has room, and behaves in the same way on every machine.
inline std::function<absl::Time()> EvenClock() {
  return [time = absl::UnixEpoch()]() mutable { return time += absl::Milliseconds(1); };
}

struct EngineOptions {
  verifier::EngineConfig config;
  int32_t num_blocks = 256;
  // Submits requests in a random order from this seed, a few before every step. Unset: all at once, in their order.
  std::optional<uint32_t> arrival_seed;
  std::function<absl::Time()> now = absl::Now;
  std::function<absl::Time()> compute_time = verifier::ThreadTime;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // unset: the demo's
};

class EngineFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = std::make_unique<LoadedModel>(LoadModel(SourcePath("deploy/demo/target")));
    tokenizer_ =
        std::make_unique<tokenizer::Tokenizer>(tokenizer::Tokenizer::Load(SourcePath("deploy/demo/target")).value());
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    model_.reset();
  }

  // Later engines of this test run on this model, which must outlive them.
  void Use(model::Transformer& transformer) { transformer_ = &transformer; }

  std::unique_ptr<verifier::Engine> MakeEngine(verifier::ProposerClient& proposers, const EngineOptions& options) {
    kv_ = transformer_->MakeKvCache(options.num_blocks);
    // The engine never reads unwritten K/V. NaN would show such a read.
    for (const model::RankKvCache& rank : kv_.ranks) {
      const std::vector<char> nan(rank.view.num_bytes(), '\xff');
      transformer_->backend().Copy(rank.view.data, nan.data(), nan.size(), kernels::CopyKind::kToDevice);
    }
    completions_.clear();
    results_.clear();
    reports_.clear();
    num_stops_in_trees_ = 0;
    return std::make_unique<verifier::Engine>(
        options.config,
        verifier::EngineParts{.transformer = transformer_,
                              .kv = &kv_,
                              .tokenizer = options.tokenizer != nullptr ? options.tokenizer : tokenizer_.get(),
                              .proposers = &proposers,
                              .end_token_ids = {4092},
                              .publish = [this](auto outputs) { Take(outputs); },
                              .now = options.now,
                              .compute_time = options.compute_time});
  }

  // Submits all requests and steps until they end.
  Results Generate(const std::vector<verifier::GenerationRequest>& requests, verifier::ProposerClient& proposers,
                   const EngineOptions& options = {}, const std::function<void(int step)>& before_step = nullptr) {
    const std::unique_ptr<verifier::Engine> engine = MakeEngine(proposers, options);
    RandomValues random(options.arrival_seed.value_or(0));
    std::vector<const verifier::GenerationRequest*> arrivals;
    for (const verifier::GenerationRequest& request : requests) {
      arrivals.push_back(&request);
      if (options.arrival_seed.has_value()) std::swap(arrivals.back(), arrivals[random.Below(arrivals.size())]);
    }
    size_t num_arrived = 0;
    int step = 0;
    bool has_more = true;
    for (; step < 20000 && (has_more || num_arrived < arrivals.size()); ++step) {
      const size_t num_now = options.arrival_seed.has_value() ? random.Below(12) : arrivals.size();
      for (size_t i = 0; i < num_now && num_arrived < arrivals.size(); ++i) {
        EXPECT_EQ(engine->Submit(engine->Reserve().value(), *arrivals[num_arrived++]), absl::OkStatus());
      }
      if (before_step) before_step(step);
      has_more = engine->Step();
    }
    stats_ = engine->GetStats();
    EXPECT_EQ(stats_.num_free_blocks + stats_.num_cached_blocks, stats_.num_blocks) << "blocks leaked";
    EXPECT_EQ(stats_.num_running, 0);
    EXPECT_EQ(stats_.num_queued, 0);
    return results_;
  }

  verifier::GenerationRequest Request(const std::string& text, float temperature, int32_t max_tokens = 40) {
    verifier::GenerationRequest request;
    request.ticket = next_ticket_++;
    request.request_id = std::to_string(request.ticket);
    request.prompt = tokenizer_->Encode(text).value();
    request.sampling.temperature = temperature;
    request.sampling.seed = 1000 + request.ticket;
    request.stop.max_tokens = max_tokens;
    return request;
  }

  // Of the last engine: the guesses of clients' predictions.
  const verifier::ProposerCount& prediction_count() const { return stats_.proposers[stats_.proposers.size() - 2]; }

  static inline std::unique_ptr<LoadedModel> model_;
  static inline std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  // Results of the last engine.
  Results results_;
  std::map<SampleKey, verifier::SampleCompletion> completions_;
  std::map<SampleKey, std::vector<verifier::StepReport>> reports_;  // of requests with reports
  int num_stops_in_trees_ = 0;                                      // samples that a stop condition ended inside a tree
  verifier::EngineStats stats_;
  verifier::Ticket next_ticket_ = 1;

 private:
  void Take(std::vector<verifier::SampleOutput>& outputs) {
    for (verifier::SampleOutput& output : outputs) {
      Result& result = results_[{output.ticket, output.sample_index}];
      EXPECT_FALSE(result.finish_reason.has_value()) << "an output after the completion";
      EXPECT_EQ(output.token_ids.size(), output.text_ends.size());
      EXPECT_EQ(output.token_ids.size(), output.speculated.size());
      if (output.prompt.has_value()) ExpectNothingOf(output.ticket);
      result.token_ids.insert(result.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
      result.text += output.text;
      for (auto& report : output.steps) reports_[{output.ticket, output.sample_index}].push_back(std::move(report));
      for (const uint32_t end : output.text_ends) EXPECT_LE(end, result.text.size());
      for (const auto& logprobs : output.logprobs) result.logprobs.push_back(BitsOf(logprobs));
      if (output.prompt.has_value()) {
        for (const auto& logprobs : output.prompt->logprobs) result.prompt_logprobs.push_back(BitsOf(logprobs));
      }
      if (!output.error.ok()) result.error = output.error;
      if (output.completion.has_value()) TakeCompletion(output, &result);
    }
  }

  // The report of the prompt comes before all else of all samples.
  void ExpectNothingOf(verifier::Ticket ticket) const {
    for (auto it = results_.lower_bound({ticket, 0}); it != results_.end() && it->first.first == ticket; ++it) {
      EXPECT_EQ(it->second, Result()) << "sample " << it->first.second;
    }
  }

  void TakeCompletion(const verifier::SampleOutput& output, Result* result) {
    result->finish_reason = output.completion->finish_reason;
    result->matched_stop_string = output.completion->matched_stop_string;
    result->matched_stop_token_id = output.completion->matched_stop_token_id;
    completions_[{output.ticket, output.sample_index}] = *output.completion;
    for (const verifier::ProposerCount& count : output.completion->proposers) {
      EXPECT_LE(count.num_accepted, count.num_proposed);
    }
    const bool is_stopped = result->finish_reason == verifier::FinishReason::kStop;
    if (is_stopped && !output.speculated.empty() && output.speculated.back()) ++num_stops_in_trees_;
  }

  model::Transformer* transformer_ = model_->transformer.get();
  model::KvCache kv_;
};

}  // namespace foretoken::testing
