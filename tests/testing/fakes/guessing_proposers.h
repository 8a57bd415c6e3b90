// SPDX-License-Identifier: Apache-2.0
// Proposers inside the test. Each is a function from a context to a tree. They answer at once, late, or not at all.
// They also answer Open, so that a sequence's first token has guesses.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::testing {

using Guess = std::function<speculation::TokenTree(std::span<const int32_t> context, int32_t node_budget)>;

class GuessingProposers : public verifier::ProposerClient {
 public:
  explicit GuessingProposers(std::vector<std::pair<std::string, Guess>> proposers = {}) {
    for (auto& [name, guess] : proposers) {
      names_.push_back(name);
      guesses_.push_back(std::move(guess));
    }
  }

  // Later trees arrive this many calls of TakeProposals late.
  void set_delay(int delay) { delay_ = delay; }
  // No further tree arrives, not even trees on their way.
  void set_dead(bool is_dead) {
    is_dead_ = is_dead;
    if (is_dead) in_flight_.clear();
  }
  size_t num_open() const { return contexts_.size(); }

  const std::vector<std::string>& Names() const override { return names_; }

  void Open(const verifier::SequenceIntroduction& introduction) override {
    std::vector<int32_t>& context = contexts_[introduction.sequence_id];
    context.assign(introduction.token_ids.begin(), introduction.token_ids.end());
    Answer(introduction.sequence_id, context,
           {.node_budget = kFirstNodeBudget, .proposers = introduction.told_proposers});
  }

  void Advance(verifier::SequenceId id, std::span<const int32_t> committed, const verifier::Ask& ask) override {
    std::vector<int32_t>& context = contexts_.at(id);
    context.insert(context.end(), committed.begin(), committed.end());
    Answer(id, context, ask);
  }

  void Close(verifier::SequenceId id) override { contexts_.erase(id); }
  void Flush(const verifier::ComingStep&) override {}

  std::vector<verifier::Proposal> TakeProposals(absl::Duration) override {
    std::vector<verifier::Proposal> proposals;
    while (!in_flight_.empty() && in_flight_.front().first <= num_takes_) {
      proposals.push_back(std::move(in_flight_.front().second));
      in_flight_.pop_front();
    }
    ++num_takes_;
    return proposals;
  }

  std::vector<verifier::ProposerStatus> GetStatus() const override { return {}; }

 private:
  static constexpr int32_t kFirstNodeBudget = 16;  // of the answer to Open, which has no budget

  void Answer(verifier::SequenceId id, std::span<const int32_t> context, const verifier::Ask& ask) {
    for (uint32_t i = 0; i < guesses_.size() && !is_dead_; ++i) {
      if ((ask.proposers >> i & 1) == 0 || ask.node_budget == 0) continue;
      speculation::TokenTree tree = guesses_[i](context, ask.node_budget);
      tree.position = context.size();
      for (speculation::TreeNode& node : tree.nodes) node.proposers = 1u << i;
      in_flight_.push_back({num_takes_ + delay_, {.sequence_id = id, .proposer_idx = i, .tree = std::move(tree)}});
    }
  }

  std::vector<std::string> names_;
  std::vector<Guess> guesses_;
  std::map<verifier::SequenceId, std::vector<int32_t>> contexts_;
  std::deque<std::pair<int, verifier::Proposal>> in_flight_;
  int num_takes_ = 0;
  int delay_ = 0;
  bool is_dead_ = false;
};

}  // namespace foretoken::testing
