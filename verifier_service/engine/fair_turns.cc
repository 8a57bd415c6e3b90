// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/fair_turns.h"

#include <algorithm>

#include "kernels/check.h"

namespace foretoken::verifier {

void FairTurns::Enter(TurnAccount& account) {
  FT_CHECK(!account.wants_turn);
  account.wants_turn = true;
  account.time = std::max(account.time, virtual_time_);
  account.number = next_number_++;
  order_.emplace(std::pair(account.time, account.number), &account);
  weights_ += account.weight;
  FollowTheOnlyOne();
}

void FairTurns::Leave(TurnAccount& account) {
  FT_CHECK(account.wants_turn);
  account.wants_turn = false;
  order_.erase({account.time, account.number});
  weights_ = order_.empty() ? 0 : weights_ - account.weight;
  FollowTheOnlyOne();
}

bool FairTurns::Charge(TurnAccount& account, double work) {
  if (order_.size() <= (account.wants_turn ? 1 : 0)) return false;
  if (!account.wants_turn) account.time = std::max(account.time, virtual_time_);
  Add(account, work);
  return true;
}

void FairTurns::GiveBack(TurnAccount& account, double work) { Add(account, -work); }

void FairTurns::Add(TurnAccount& account, double work) {
  if (!account.wants_turn) {
    account.time += work / account.weight;
    return;
  }
  order_.erase({account.time, account.number});
  account.time += work / account.weight;
  order_.emplace(std::pair(account.time, account.number), &account);
  virtual_time_ += work / weights_;
  FollowTheOnlyOne();
}

// A tenant that wants turns alone gets exactly its share.
void FairTurns::FollowTheOnlyOne() {
  if (order_.size() == 1) virtual_time_ = order_.begin()->second->time;
}

}  // namespace foretoken::verifier
