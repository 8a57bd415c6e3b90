// SPDX-License-Identifier: Apache-2.0
// Reads the input as the messages of a verifier's stream, and gives them to an n-gram proposer, a suffix proposer and a
// proposer that needs features. Every answer is one that a verifier can read (verifier_stream.h), and features arrive
// without gaps, within the stream's credit.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proposer_service/ngram/ngram.h"
#include "proposer_service/suffix/suffix.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/reading_proposer.h"
#include "tests/fuzz/verifier_stream.h"

namespace foretoken::proposer {
namespace {

constexpr SessionLimits kLimits = {.max_sessions = 8,
                                   .max_total_tokens = 1000,
                                   .max_stream_share = 1,
                                   .max_context_tokens = 400,
                                   .max_stream_feature_bytes = 1024,
                                   .max_tree_nodes = 16};
constexpr size_t kMaxMessages = 32;

void Run(const std::vector<absl::string_view>& messages, Proposer& proposer) {
  testing::VerifierStream stream(proposer, kLimits);
  for (const absl::string_view message : messages) {
    if (!stream.Take(message)) return;
    stream.TakeAnswers();
  }
}

}  // namespace
}  // namespace foretoken::proposer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  std::vector<absl::string_view> messages = testing::SplitMessages(data, size);
  messages.resize(std::min(messages.size(), proposer::kMaxMessages));
  proposer::NgramProposer ngram({});
  proposer::Run(messages, ngram);
  proposer::SuffixProposer suffix({.shared_tokens = 1024});
  proposer::Run(messages, suffix);
  suffix.WaitUntilLearned();
  static const auto features = std::make_shared<const speculation::TargetFeatures>(
      speculation::TargetFeatures{.layers = {3}, .target_hidden_size = 4});
  testing::ReadingProposer drafter(features, proposer::kLimits.max_stream_feature_bytes);
  proposer::Run(messages, drafter);
  return 0;
}
