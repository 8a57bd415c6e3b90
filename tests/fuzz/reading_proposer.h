// SPDX-License-Identifier: Apache-2.0
// A proposer that reads its sessions' tokens, and features if it needs them, and guesses nothing. It ends the process
// if a session's features have a gap, or if more of them wait than the stream has room for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::testing {

class ReadingProposer : public proposer::Proposer {
 public:
  // `features` null: it reads tokens alone. `max_feature_bytes` is its SessionLimits::max_stream_feature_bytes.
  ReadingProposer(std::shared_ptr<const speculation::TargetFeatures> features, int64_t max_feature_bytes)
      : description_{.method = "reading", .features = std::move(features)}, max_feature_bytes_(max_feature_bytes) {}

  const proposer::ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<proposer::Session> Open(const proposer::SessionIntroduction&) override {
    return std::make_unique<Reader>(*this);
  }
  std::vector<speculation::TokenTree> Propose(std::span<const proposer::ProposalRequest> requests) override {
    std::vector<speculation::TokenTree> trees;
    for (const proposer::ProposalRequest& request : requests) {
      trees.push_back({.position = request.session->position()});
    }
    return trees;
  }

 private:
  class Reader : public proposer::Session {
   public:
    explicit Reader(const ReadingProposer& owner) : owner_(owner) {}
    void Append(std::span<const int32_t> token_ids) override { position_ += token_ids.size(); }
    void AppendFeatures(uint64_t first_position, std::span<const uint16_t> values) override {
      const auto width = static_cast<size_t>(owner_.description_.features->width());
      FT_CHECK(values.size() % width == 0);
      FT_CHECK(!next_.has_value() || first_position == *next_);
      next_ = first_position + values.size() / width;
      FT_CHECK(*next_ <= position_);
      num_unused_ += static_cast<int64_t>(values.size());
      FT_CHECK(num_unused_ * 2 <= owner_.max_feature_bytes_);
      if (first_position % 3 == 0) num_unused_ = 0;
    }
    int64_t num_unused_feature_values() const override { return num_unused_; }
    uint64_t position() const override { return position_; }

   private:
    const ReadingProposer& owner_;
    uint64_t position_ = 0;
    std::optional<uint64_t> next_;  // position of the next feature
    int64_t num_unused_ = 0;
  };

  const proposer::ProposerDescription description_;
  const int64_t max_feature_bytes_;
};

}  // namespace foretoken::testing
