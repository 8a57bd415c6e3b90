// SPDX-License-Identifier: Apache-2.0
// A proposer that reads features of the target, keeps them for the test, and guesses nothing. It uses features only
// when the test says so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::testing {

class FeatureRecorder : public proposer::Proposer {
 public:
  explicit FeatureRecorder(speculation::TargetFeatures features, std::string method = "ngram")
      : description_{.method = std::move(method),
                     .features = std::make_shared<const speculation::TargetFeatures>(std::move(features))} {}

  const proposer::ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<proposer::Session> Open(const proposer::SessionIntroduction& introduction) override {
    return std::make_unique<Recorder>(*this, introduction.seed);
  }
  std::vector<speculation::TokenTree> Propose(std::span<const proposer::ProposalRequest> requests) override {
    std::vector<speculation::TokenTree> trees;
    for (const proposer::ProposalRequest& request : requests)
      trees.push_back({.position = request.session->position()});
    return trees;
  }

  // The features of the session with this seed, by position; the first value of each.
  std::map<uint64_t, uint16_t> Features(uint64_t seed) const {
    absl::MutexLock lock(&mutex_);
    const auto found = features_.find(seed);
    return found == features_.end() ? std::map<uint64_t, uint16_t>() : found->second;
  }
  // Whether features are used as they come. Otherwise they stay unused.
  void set_uses_features(bool uses_features) {
    absl::MutexLock lock(&mutex_);
    uses_features_ = uses_features;
  }
  void set_readiness(proposer::Readiness readiness) {
    absl::MutexLock lock(&mutex_);
    readiness_ = readiness;
  }

 private:
  class Recorder : public proposer::Session {
   public:
    Recorder(FeatureRecorder& owner, uint64_t seed) : owner_(owner), seed_(seed) {}
    void Append(std::span<const int32_t> token_ids) override { position_ += token_ids.size(); }
    void AppendFeatures(uint64_t first_position, std::span<const uint16_t> values) override {
      num_values_ += static_cast<int64_t>(values.size());
      const auto width = static_cast<size_t>(owner_.description_.features->width());
      absl::MutexLock lock(&owner_.mutex_);
      for (size_t i = 0; i * width < values.size(); ++i)
        owner_.features_[seed_][first_position + i] = values[i * width];
    }
    int64_t num_unused_feature_values() const override {
      absl::MutexLock lock(&owner_.mutex_);
      return owner_.uses_features_ ? 0 : num_values_;
    }
    uint64_t position() const override { return position_; }
    proposer::Readiness readiness() const override {
      absl::MutexLock lock(&owner_.mutex_);
      return owner_.readiness_;
    }

   private:
    FeatureRecorder& owner_;
    const uint64_t seed_;
    uint64_t position_ = 0;
    int64_t num_values_ = 0;
  };

  const proposer::ProposerDescription description_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, std::map<uint64_t, uint16_t>> features_ ABSL_GUARDED_BY(mutex_);
  bool uses_features_ ABSL_GUARDED_BY(mutex_) = true;
  proposer::Readiness readiness_ ABSL_GUARDED_BY(mutex_) = proposer::Readiness::kReady;
};

}  // namespace foretoken::testing
