// SPDX-License-Identifier: Apache-2.0
// Whose turn it is among tenants that want more than there is. Each tenant has an account: the work that was done for
// it, divided by its weight. The turn belongs to the tenant with the lowest account. So tenants that always want turns
// get work in proportion to their weights.
//
// The virtual time is the account of a tenant that gets exactly its share. A tenant that begins to want turns has at
// least the virtual time on its account, so it gets nothing for the time that it was away. The virtual time moves on
// with all work that is done, so nobody waits forever, however many new tenants come.
//
// Work is free while no other tenant wants a turn, because it takes nothing from anybody.
//
//   turns.Enter(a);
//   turns.Enter(b);
//   turns.Charge(a, 100);
//   turns.order().begin()->second;  // &b
//
// Source: P. Goyal, H. Vin and H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996. Accounts of tokens: Y. Sheng et al.,
// "Fairness in Serving Large Language Models", OSDI 2024.
// Units: tokens for a tenant of weight 1. Cost: O(log n) for each call. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace foretoken::verifier {

struct TurnAccount {
  double weight = 1;
  double time = 0;          // virtual: the tenant's work divided by its weight, plus the time at which it came
  uint64_t number = 0;      // breaks ties: the lower number goes first
  bool wants_turn = false;  // FairTurns knows it
};

class FairTurns {
 public:
  using Order = std::map<std::pair<double, uint64_t>, TurnAccount*>;

  // The tenants that want a turn. The turn belongs to the first.
  const Order& order() const { return order_; }

  // From now on the account wants turns. It must not move before Leave.
  void Enter(TurnAccount& account);
  void Leave(TurnAccount& account);
  // Counts work that is done for this tenant now or soon. Returns false, and counts nothing, if no other tenant wants a
  // turn.
  bool Charge(TurnAccount& account, double work);
  // Takes back charged work that was not done.
  void GiveBack(TurnAccount& account, double work);

 private:
  void Add(TurnAccount& account, double work);
  void FollowTheOnlyOne();

  Order order_;
  double weights_ = 0;  // of the accounts in order_
  double virtual_time_ = 0;
  uint64_t next_number_ = 0;
};

}  // namespace foretoken::verifier
