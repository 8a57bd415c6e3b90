// SPDX-License-Identifier: Apache-2.0
// Real proposers behind ProposerClient without a network. Their sessions are real, and their trees pass through the
// protocol's messages and checks.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/tree_conversion.h"
#include "gtest/gtest.h"
#include "proposer_service/proposer/proposer.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::testing {

class InProcessProposers : public verifier::ProposerClient {
 public:
  InProcessProposers(std::vector<proposer::Proposer*> proposers, int32_t num_tokens)
      : proposers_(std::move(proposers)), num_tokens_(num_tokens) {
    for (proposer::Proposer* proposer : proposers_) names_.push_back(proposer->Describe().method);
  }

  // Later trees arrive this many calls of TakeProposals late.
  void set_delay(int delay) { delay_ = delay; }
  // If set, the proposers also answer Open, so that a sequence's first token has guesses.
  void set_answers_opens(bool answers_opens) { answers_opens_ = answers_opens; }

  const std::vector<std::string>& Names() const override { return names_; }

  void Open(const verifier::SequenceIntroduction& introduction) override {
    for (proposer::Proposer* proposer : proposers_) {
      auto session = proposer->Open({.rule = introduction.rule,
                                     .seed = introduction.seed,
                                     .sample_index = introduction.sample_index,
                                     .temperature = introduction.temperature,
                                     .top_k = static_cast<uint32_t>(introduction.top_k),
                                     .top_p = introduction.top_p,
                                     .min_p = introduction.min_p,
                                     .tenant = introduction.tenant});
      if (!answers_opens_) session->Append(introduction.token_ids);
      sessions_[introduction.sequence_id].push_back(std::move(session));
    }
    if (answers_opens_) {
      Advance(introduction.sequence_id, introduction.token_ids,
              {.node_budget = kFirstNodeBudget, .proposers = introduction.told_proposers});
    }
  }

  void Advance(verifier::SequenceId id, std::span<const int32_t> committed, const verifier::Ask& ask) override {
    for (uint32_t i = 0; i < proposers_.size(); ++i) {
      proposer::Session& session = *sessions_.at(id)[i];
      session.Append(committed);
      const bool is_asked = (ask.proposers >> i & 1) != 0 && ask.node_budget > 0;
      session.Want({.node_budget = is_asked ? ask.node_budget : 0});
      if (!is_asked) continue;
      const proposer::ProposalRequest request = {.session = &session, .node_budget = ask.node_budget};
      absl::StatusOr<speculation::TokenTree> tree =
          rpc::FromProto(rpc::ToProto(proposers_[i]->Propose({&request, 1}).front(), id),
                         {.num_tokens = num_tokens_, .proposers = 1u << i});
      EXPECT_TRUE(tree.ok()) << tree.status();
      if (!tree.ok()) continue;
      in_flight_.push_back({num_takes_ + delay_, {.sequence_id = id, .proposer_idx = i, .tree = *std::move(tree)}});
    }
  }

  void Close(verifier::SequenceId id) override { sessions_.erase(id); }
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

  std::vector<proposer::Proposer*> proposers_;
  int32_t num_tokens_;
  std::vector<std::string> names_;
  std::map<verifier::SequenceId, std::vector<std::unique_ptr<proposer::Session>>> sessions_;
  std::deque<std::pair<int, verifier::Proposal>> in_flight_;
  int num_takes_ = 0;
  int delay_ = 0;
  bool answers_opens_ = false;
};

}  // namespace foretoken::testing
