// SPDX-License-Identifier: Apache-2.0
// A proposer whose trees are a function of the context. Its sessions store their context and nothing else.
//
//   GuessingProposer proposer("random", Random(/*seed=*/1));  // a guess from guesses.h
//
// Threads: as Proposer. One guess is made at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::testing {

using Guess = std::function<speculation::TokenTree(std::span<const int32_t> context, int32_t node_budget)>;
// A guess that also reads how its session is verified.
using SessionGuess = std::function<speculation::TokenTree(const proposer::SessionIntroduction& introduction,
                                                          std::span<const int32_t> context, int32_t node_budget)>;

class GuessingProposer : public proposer::Proposer {
 public:
  GuessingProposer(std::string method, SessionGuess guess)
      : description_{.method = std::move(method)}, guess_(std::move(guess)) {}
  GuessingProposer(std::string method, Guess guess)
      : GuessingProposer(
            std::move(method),
            SessionGuess([guess = std::move(guess)](const auto&, std::span<const int32_t> context,
                                                    int32_t node_budget) { return guess(context, node_budget); })) {}

  const proposer::ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<proposer::Session> Open(const proposer::SessionIntroduction& introduction) override {
    return std::make_unique<Mirror>(introduction);
  }
  std::vector<speculation::TokenTree> Propose(std::span<const proposer::ProposalRequest> requests) override {
    absl::MutexLock lock(&mutex_);
    std::vector<speculation::TokenTree> trees;
    for (const proposer::ProposalRequest& request : requests) {
      const auto& mirror = static_cast<const Mirror&>(*request.session);
      trees.push_back(guess_(mirror.introduction, mirror.token_ids, request.node_budget));
      trees.back().position = mirror.position();
    }
    return trees;
  }

 private:
  struct Mirror : proposer::Session {
    explicit Mirror(const proposer::SessionIntroduction& made) : introduction(made) {}
    void Append(std::span<const int32_t> more) override { token_ids.insert(token_ids.end(), more.begin(), more.end()); }
    uint64_t position() const override { return token_ids.size(); }

    const proposer::SessionIntroduction introduction;
    std::vector<int32_t> token_ids;
  };

  const proposer::ProposerDescription description_;
  absl::Mutex mutex_;
  const SessionGuess guess_;
};

}  // namespace foretoken::testing
