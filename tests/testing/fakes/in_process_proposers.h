// SPDX-License-Identifier: Apache-2.0
// Proposers behind ProposerClient in the test's own process. They answer at once, late, or not at all. They answer Open
// too, so that a sequence's first token has guesses.
//
//   InProcessProposers none;
//   InProcessProposers several({&ngram, {"oracle", Oracle(texts)}});
//
// Their trees reach the engine as they are, so a test can also give the engine a wrong tree. OverTheWire
// (over_the_wire.h) sends them through the protocol's messages and checks instead, and needs the protocol's library,
// which the tests on a GPU do not link.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proposer_service/proposer/proposer.h"
#include "tests/testing/fakes/guessing_proposer.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::testing {

// Makes the tree that the engine gets from the tree that a proposer made. Every node of it gets this proposer's bit.
using Delivery = std::function<speculation::TokenTree(speculation::TokenTree tree, uint32_t proposer_bit)>;

inline speculation::TokenTree AsItIs(speculation::TokenTree tree, uint32_t proposer_bit) {
  for (speculation::TreeNode& node : tree.nodes) node.proposers = proposer_bit;
  return tree;
}

class InProcessProposers : public verifier::ProposerClient {
 public:
  // A proposer that outlives the client, or a guess under the name of a method.
  class Member {
   public:
    Member(proposer::Proposer* proposer)  // NOLINT(google-explicit-constructor): a list of members stays short
        : proposer_(std::shared_ptr<void>(), proposer) {}
    Member(std::string method, Guess guess)
        : proposer_(std::make_shared<GuessingProposer>(std::move(method), std::move(guess))) {}
    proposer::Proposer* operator->() const { return proposer_.get(); }

   private:
    std::shared_ptr<proposer::Proposer> proposer_;  // shared, because a list of members is copied; may own nothing
  };

  explicit InProcessProposers(std::vector<Member> members = {}, Delivery delivery = AsItIs)
      : members_(std::move(members)), delivery_(std::move(delivery)) {
    for (const Member& member : members_) names_.push_back(member->Describe().method);
  }

  // Later trees arrive this many calls of TakeProposals late.
  void set_delay(int delay) { delay_ = delay; }
  // No further tree arrives, not even trees on their way.
  void set_dead(bool is_dead) {
    is_dead_ = is_dead;
    if (is_dead) in_flight_.clear();
  }
  size_t num_open() const { return sessions_.size(); }

  const std::vector<std::string>& Names() const override { return names_; }

  void Open(const verifier::SequenceIntroduction& introduction) override {
    Sessions& sessions = sessions_[introduction.sequence_id];
    for (const Member& member : members_) {
      sessions.push_back(member->Open({.rule = introduction.rule,
                                       .seed = introduction.seed,
                                       .sample_index = introduction.sample_index,
                                       .temperature = introduction.temperature,
                                       .top_k = static_cast<uint32_t>(introduction.top_k),
                                       .top_p = introduction.top_p,
                                       .min_p = introduction.min_p,
                                       .tenant = introduction.tenant}));
    }
    Advance(introduction.sequence_id, introduction.token_ids,
            {.node_budget = kFirstNodeBudget,
             .proposers = introduction.told_proposers,
             .allowed_tokens = introduction.allowed_tokens});
  }

  void Advance(verifier::SequenceId id, std::span<const int32_t> committed, const verifier::Ask& ask) override {
    lengths_[id] += static_cast<int32_t>(committed.size());
    for (uint32_t i = 0; i < members_.size(); ++i) {
      proposer::Session& session = *sessions_.at(id)[i];
      session.Append(committed);
      const bool is_asked = !is_dead_ && (ask.proposers >> i & 1) != 0 && ask.node_budget > 0;
      session.Want({.node_budget = is_asked ? ask.node_budget : 0,
                    .allowed = speculation::AllowedTokens(
                        speculation::AllowedTokensBytes(ask.allowed_tokens, std::numeric_limits<size_t>::max()))});
      if (!is_asked) continue;
      // A drafter answers when the features of the step have come.
      if (members_[i]->Describe().features != nullptr) {
        asked_drafters_[{id, i}] = ask.node_budget;
      } else {
        Answer(id, i, ask.node_budget);
      }
    }
  }

  void Close(verifier::SequenceId id) override {
    sessions_.erase(id);
    lengths_.erase(id);
    std::erase_if(features_given_, [id](const auto& entry) { return entry.first.first == id; });
  }

  // Gives members that read features whatever they lack. While false, features wait.
  void set_gives_features(bool gives_features) { gives_features_ = gives_features; }
  // A demand is for at most so many positions.
  void set_max_demand(int32_t num_positions) { max_demand_ = num_positions; }
  std::vector<verifier::FeatureSource> FeatureSources() override {
    std::vector<verifier::FeatureSource> sources;
    for (const Member& member : members_) {
      const verifier::FeatureSource& source = member->Describe().features;
      if (source != nullptr && std::ranges::count(sources, source) == 0) sources.push_back(source);
    }
    return sources;
  }
  std::vector<verifier::FeatureDemand> FeatureDemands() override {
    std::vector<verifier::FeatureDemand> demands;
    if (!gives_features_) return demands;
    for (const auto& [id, length] : lengths_) {
      for (uint32_t i = 0; i < members_.size(); ++i) {
        const verifier::FeatureSource& source = members_[i]->Describe().features;
        const int32_t begin = features_given_[{id, i}];
        if (source == nullptr || begin + 1 >= length) continue;
        demands.push_back({.sequence_id = id,
                           .source = source.get(),
                           .begin = begin,
                           .end = begin + std::min(length - 1 - begin, max_demand_),
                           .session_id = i});
      }
    }
    return demands;
  }
  void GiveFeatures(const verifier::FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values) override {
    const auto num_positions = static_cast<int32_t>(values.size() / static_cast<size_t>(demand.source->width()));
    features_given_[{demand.sequence_id, static_cast<uint32_t>(demand.session_id)}] = begin + num_positions;
    sessions_.at(demand.sequence_id)[demand.session_id]->AppendFeatures(static_cast<uint64_t>(begin), values);
  }
  void Flush(const verifier::ComingStep&) override {
    for (const auto& [asked, node_budget] : std::exchange(asked_drafters_, {})) {
      if (sessions_.contains(asked.first)) Answer(asked.first, asked.second, node_budget);
    }
  }

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
  void Answer(verifier::SequenceId id, uint32_t i, int32_t node_budget) {
    const proposer::ProposalRequest request = {.session = sessions_.at(id)[i].get(), .node_budget = node_budget};
    speculation::TokenTree tree = std::move(members_[i]->Propose({&request, 1}).front());
    in_flight_.push_back(
        {num_takes_ + delay_, {.sequence_id = id, .proposer_idx = i, .tree = delivery_(std::move(tree), 1u << i)}});
  }

  static constexpr int32_t kFirstNodeBudget = 16;                    // of the answer to Open, which has no budget
  using Sessions = std::vector<std::unique_ptr<proposer::Session>>;  // one per member

  std::vector<Member> members_;
  Delivery delivery_;
  std::vector<std::string> names_;
  std::map<verifier::SequenceId, Sessions> sessions_;
  std::map<verifier::SequenceId, int32_t> lengths_;                              // in tokens
  std::map<std::pair<verifier::SequenceId, uint32_t>, int32_t> features_given_;  // positions, by sequence and member
  std::map<std::pair<verifier::SequenceId, uint32_t>, int32_t> asked_drafters_;  // node budgets
  bool gives_features_ = true;
  int32_t max_demand_ = std::numeric_limits<int32_t>::max();
  std::deque<std::pair<int, verifier::Proposal>> in_flight_;
  int num_takes_ = 0;
  int delay_ = 0;
  bool is_dead_ = false;
};

}  // namespace foretoken::testing
