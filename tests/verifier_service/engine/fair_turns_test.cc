// SPDX-License-Identifier: Apache-2.0
// Turns between tenants. If this test fails, one tenant gets more than its share while others wait, a tenant saves up
// turns while it is away, or a tenant waits forever.
#include "verifier_service/engine/fair_turns.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace foretoken::verifier {
namespace {

// Gives turns, each with this much work for the account.
void Serve(FairTurns& turns, int num_turns, const std::map<TurnAccount*, double>& work,
           std::map<TurnAccount*, int>* num_served = nullptr) {
  for (int i = 0; i < num_turns; ++i) {
    TurnAccount* const next = turns.order().begin()->second;
    turns.Charge(*next, work.at(next));
    if (num_served != nullptr) ++(*num_served)[next];
  }
}

struct ShareCase {
  std::string name;
  double weight_a = 1, weight_b = 1;
  double work_a = 10, work_b = 10;  // of a turn
  int num_a = 0, num_b = 0;         // expected turns
};

std::ostream& operator<<(std::ostream& out, const ShareCase& share) { return out << share.name; }

class Shares : public ::testing::TestWithParam<ShareCase> {};

TEST_P(Shares, FollowWeightsAndWork) {
  const ShareCase& share = GetParam();
  TurnAccount a = {.weight = share.weight_a}, b = {.weight = share.weight_b};
  FairTurns turns;
  turns.Enter(a);
  turns.Enter(b);
  std::map<TurnAccount*, int> num_served;
  Serve(turns, share.num_a + share.num_b, {{&a, share.work_a}, {&b, share.work_b}}, &num_served);
  EXPECT_NEAR(num_served[&a], share.num_a, 1);
  EXPECT_NEAR(num_served[&b], share.num_b, 1);
}

INSTANTIATE_TEST_SUITE_P(
    FairTurns, Shares,
    ::testing::Values(ShareCase{.name = "equal", .num_a = 50, .num_b = 50},
                      ShareCase{.name = "three to one", .weight_a = 3, .num_a = 75, .num_b = 25},
                      ShareCase{.name = "light", .weight_b = 0.25, .num_a = 80, .num_b = 20},
                      ShareCase{.name = "long turns", .work_a = 90, .num_a = 10, .num_b = 90},
                      ShareCase{.name = "long and heavy", .weight_a = 3, .work_a = 30, .num_a = 50, .num_b = 50}));

TEST(FairTurns, ATenantThatComesGetsNothingForItsAbsence) {
  TurnAccount a, b, late;
  FairTurns turns;
  turns.Enter(a);
  turns.Enter(b);
  Serve(turns, 1000, {{&a, 10}, {&b, 10}});
  turns.Enter(late);
  std::map<TurnAccount*, int> num_served;
  Serve(turns, 30, {{&a, 10}, {&b, 10}, {&late, 10}}, &num_served);
  EXPECT_NEAR(num_served[&late], 10, 1);
}

TEST(FairTurns, WorkIsFreeWhileNobodyElseWantsATurn) {
  TurnAccount a, b;
  FairTurns turns;
  EXPECT_FALSE(turns.Charge(a, 10)) << "nobody wants a turn";
  turns.Enter(a);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(turns.Charge(a, 10));
  turns.Enter(b);
  std::map<TurnAccount*, int> num_served;
  Serve(turns, 20, {{&a, 10}, {&b, 10}}, &num_served);
  EXPECT_NEAR(num_served[&a], 10, 1);
}

TEST(FairTurns, WorkThatWasNotDoneIsGivenBack) {
  TurnAccount a, b;
  FairTurns turns;
  turns.Enter(a);
  turns.Enter(b);
  std::map<TurnAccount*, int> num_served;
  for (int i = 0; i < 100; ++i) {
    TurnAccount* const next = turns.order().begin()->second;
    ++num_served[next];
    ASSERT_TRUE(turns.Charge(*next, 10));
    if (next == &a) turns.GiveBack(a, 9);
  }
  EXPECT_NEAR(num_served[&a], 91, 2);
}

TEST(FairTurns, ATenantThatOnlyRunsStillPaysForItsWork) {
  TurnAccount a, b;
  FairTurns turns;
  turns.Enter(a);
  turns.Enter(b);
  turns.Leave(b);
  EXPECT_TRUE(turns.Charge(b, 100)) << "a waits meanwhile";
  turns.Enter(b);
  std::map<TurnAccount*, int> num_served;
  Serve(turns, 10, {{&a, 10}, {&b, 10}}, &num_served);
  EXPECT_EQ(num_served[&b], 0);
}

TEST(FairTurns, ATenantIsServedHoweverManyNewTenantsCome) {
  constexpr int kNumWaiting = 50;
  TurnAccount honest;
  std::deque<TurnAccount> invented(kNumWaiting);
  FairTurns turns;
  turns.Enter(honest);
  for (TurnAccount& account : invented) turns.Enter(account);
  int num_served = 0;
  for (int i = 0; i < 20 * (kNumWaiting + 1); ++i) {
    TurnAccount* const next = turns.order().begin()->second;
    turns.Charge(*next, 10);
    if (next == &honest) {
      ++num_served;
      continue;
    }
    turns.Leave(*next);  // it had one request, and another new tenant comes
    turns.Enter(invented.emplace_back());
  }
  EXPECT_GE(num_served, 18) << "its share is one turn of " << kNumWaiting + 1;
}

TEST(FairTurns, AVisitorCostsTheOthersItsShareAndNoMore) {
  TurnAccount a;
  FairTurns turns;
  turns.Enter(a);
  int num_waits = 0;
  for (int i = 0; i < 1000; ++i) {
    TurnAccount visitor;
    turns.Enter(visitor);
    for (; turns.order().begin()->second == &a; ++num_waits) turns.Charge(a, 10);
    turns.Charge(visitor, 10);
    turns.Leave(visitor);
    turns.Charge(a, 10);
  }
  EXPECT_LE(num_waits, 1001) << "a visitor waits for at most one turn of another tenant";
}

}  // namespace
}  // namespace foretoken::verifier
