// SPDX-License-Identifier: Apache-2.0
// Sequences without a session in the book, and why. If this test fails, step reports and metrics give a wrong reason
// for missing guesses, and a group of proposers grows too little or too much.
#include <gtest/gtest.h>

#include "tests/verifier_service/proposers/session_book_fixture.h"

namespace foretoken::verifier {
namespace {

TEST_F(SessionBookTest, KnowsWhyASequenceHasNoSession) {
  Open(1, {5}, /*proposers=*/1);
  EXPECT_EQ(book_.FindMissing(1).absent, 1u);  // and not the other proposer, which may not serve it
  EXPECT_EQ(book_.FindMissing(1).refusing, 0u);
  book_.AddReplica(10, 0, {.max_sessions = 1}, kNow);
  EXPECT_EQ(book_.FindMissing(1).absent | book_.FindMissing(1).refusing, 0u);
  Open(2, {5}, /*proposers=*/3);  // the replica is full
  EXPECT_EQ(book_.FindMissing(2).refusing, 1u);
  EXPECT_EQ(book_.FindMissing(2).absent, 2u);
  Next(10);
  Refuse(10, 1);
  EXPECT_EQ(book_.FindMissing(1).refusing, 1u);
  book_.RemoveReplica(10, kNow);
  EXPECT_EQ(book_.FindMissing(1).absent, 1u);
  book_.Close(1);
  EXPECT_EQ(book_.FindMissing(1).absent, 0u);
}

TEST_F(SessionBookTest, CountsTheSequencesThatWaitForRoom) {
  Open(1, {5}, /*proposers=*/1);
  EXPECT_EQ(book_.num_waiting(0), 0) << "no replica is connected";
  book_.AddReplica(10, 0, {.max_sessions = 1, .max_context_tokens = 3}, kNow);
  Open(2, {5}, /*proposers=*/1);
  Open(3, {5}, /*proposers=*/3);
  Open(4, {5}, /*proposers=*/2);
  Open(5, {5, 6, 7, 8}, /*proposers=*/1);  // too long
  EXPECT_EQ(book_.num_waiting(0), 2);
  EXPECT_EQ(book_.num_waiting(1), 0);
  book_.Close(2);
  EXPECT_EQ(book_.num_waiting(0), 1);
  Next(10);
  Refuse(10, 1);
  EXPECT_EQ(book_.num_waiting(0), 2) << "the refused sequence, and one that tries again later";
  book_.AddReplica(11, 0, {}, kNow);
  EXPECT_EQ(book_.num_waiting(0), 0);
}

}  // namespace
}  // namespace foretoken::verifier
