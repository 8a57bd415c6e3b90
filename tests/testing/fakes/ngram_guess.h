// SPDX-License-Identifier: Apache-2.0
// The n-gram proposer as a test's guess. It is not in guesses.h, because it needs the proposer service's library.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "proposer_service/ngram/ngram.h"
#include "tests/testing/fakes/guessing_proposers.h"

namespace foretoken::testing {

// Its guesses depend on the context alone, so every guess can use a new session.
inline Guess Ngram() {
  auto proposer = std::make_shared<proposer::NgramProposer>(proposer::NgramOptions());
  return [proposer](std::span<const int32_t> context, int32_t node_budget) {
    const std::unique_ptr<proposer::Session> session = proposer->Open({});
    session->Append(context);
    return std::move(proposer->Propose({{{.session = session.get(), .node_budget = node_budget}}}).front());
  };
}

}  // namespace foretoken::testing
