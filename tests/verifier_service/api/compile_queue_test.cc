// SPDX-License-Identifier: Apache-2.0
// The line of response formats. If this test fails, one tenant's costly formats keep others from theirs.
#include "verifier_service/api/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

class CompileQueueTest : public ::testing::Test {
 protected:
  // The first work holds the thread until the test releases it.
  void Block() {
    ASSERT_TRUE(queue_
                    ->Push("blocker", next_ticket_++,
                           [this](CompileQueue::Place place) {
                             place.reset();
                             is_running_.Notify();
                             release_.WaitForNotification();
                           })
                    .ok());
    is_running_.WaitForNotification();
  }
  absl::Status Push(const std::string& tenant) {
    const uint64_t ticket = next_ticket_++;
    return queue_->Push(tenant, ticket, [this, tenant](CompileQueue::Place) { done_.push_back(tenant); });
  }
  // The works that have run, in order.
  std::vector<std::string> Finish() {
    release_.Notify();
    queue_.reset();
    return done_;
  }

  absl::Notification is_running_, release_;
  std::vector<std::string> done_;  // written by the queue's thread
  uint64_t next_ticket_ = 1;
  std::unique_ptr<CompileQueue> queue_ = std::make_unique<CompileQueue>(8);
};

TEST_F(CompileQueueTest, TenantsTakeTurns) {
  Block();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push("a").ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Push("b").ok());
  EXPECT_THAT(Finish(), ElementsAre("a", "b", "a", "b", "a"));
}

TEST_F(CompileQueueTest, OneTenantTakesAtMostHalfOfThePlaces) {
  Block();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Push("a").ok());
  const absl::Status refused = Push("a");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(refused), "GRAMMARS_FULL");
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("4 formats of this tenant"));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Push(absl::StrCat("b", i % 2)).ok());
  EXPECT_THAT(std::string(Push("c").message()), ::testing::HasSubstr("8 formats wait"));
  EXPECT_EQ(Finish().size(), 8);
}

TEST_F(CompileQueueTest, RemovedWorkNeverRunsAndItsPlaceIsFree) {
  Block();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Push("a").ok());
  EXPECT_TRUE(queue_->Remove(next_ticket_ - 1));
  EXPECT_FALSE(queue_->Remove(next_ticket_ - 1));
  EXPECT_FALSE(queue_->Remove(next_ticket_ + 100));
  EXPECT_TRUE(Push("a").ok());
  EXPECT_EQ(Finish().size(), 4);
}

TEST_F(CompileQueueTest, AQueueWithOnePlaceTakesOne) {
  queue_ = std::make_unique<CompileQueue>(1);
  Block();  // has given its place back
  EXPECT_TRUE(Push("a").ok());
  EXPECT_FALSE(Push("b").ok());
  EXPECT_THAT(Finish(), ElementsAre("a"));
}

TEST_F(CompileQueueTest, AQueueWithoutPlacesTakesNothing) {
  queue_ = std::make_unique<CompileQueue>(0);
  EXPECT_FALSE(Push("a").ok());
}

}  // namespace
}  // namespace foretoken::verifier
