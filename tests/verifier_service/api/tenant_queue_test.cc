// SPDX-License-Identifier: Apache-2.0
// The line of requests that are parsed and whose formats are compiled. If this test fails, one tenant's costly requests
// keep others from theirs.
#include "verifier_service/api/tenant_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

class TenantQueueTest : public ::testing::Test {
 protected:
  // The first work holds the thread until the test releases it.
  void Block() {
    queue_->Push({.tenant = "blocker", .ticket = next_ticket_++}, [this] {
      is_running_.Notify();
      release_.WaitForNotification();
    });
    is_running_.WaitForNotification();
  }
  void Push(const std::string& tenant, double cost = 1) {
    queue_->Push({.tenant = tenant, .ticket = next_ticket_++, .cost = cost},
                 [this, tenant] { done_.push_back(tenant); });
  }
  // The works that have run, in order.
  std::vector<std::string> Finish() {
    release_.Notify();
    queue_.reset();
    return done_;
  }

  absl::Notification is_running_, release_;
  std::vector<std::string> done_;  // written by the queue's thread
  Ticket next_ticket_ = 1;
  std::unique_ptr<TenantQueue> queue_ = std::make_unique<TenantQueue>(1);
};

TEST_F(TenantQueueTest, TenantsTakeTurns) {
  Block();
  for (int i = 0; i < 3; ++i) Push("a");
  for (int i = 0; i < 2; ++i) Push("b");
  EXPECT_THAT(Finish(), ElementsAre("a", "b", "a", "b", "a"));
}

TEST_F(TenantQueueTest, ATenantPaysForTheCostOfItsWork) {
  Block();
  for (int i = 0; i < 2; ++i) Push("long", 3);
  for (int i = 0; i < 5; ++i) Push("short");
  EXPECT_THAT(Finish(), ElementsAre("long", "short", "short", "short", "long", "short", "short"));
}

TEST_F(TenantQueueTest, RemovedWorkNeverRuns) {
  Block();
  Push("b");
  for (int i = 0; i < 2; ++i) Push("a");
  EXPECT_TRUE(queue_->Remove(next_ticket_ - 1));
  EXPECT_FALSE(queue_->Remove(next_ticket_ - 1));
  EXPECT_TRUE(queue_->Remove(next_ticket_ - 3));  // the last work of its tenant
  EXPECT_FALSE(queue_->Remove(next_ticket_ + 100));
  EXPECT_THAT(Finish(), ElementsAre("a"));
}

TEST_F(TenantQueueTest, RemovedWorkIsGoneAtOnce) {
  Block();
  const auto held = std::make_shared<int>(0);
  queue_->Push({.ticket = 100}, [held] {});
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_TRUE(queue_->Remove(100));
  EXPECT_EQ(held.use_count(), 1);
  Finish();
}

TEST_F(TenantQueueTest, SeveralThreadsWorkAtATime) {
  absl::Notification first_runs, second_runs;
  queue_ = std::make_unique<TenantQueue>(2);
  queue_->Push({.tenant = "a", .ticket = 1}, [&] {
    first_runs.Notify();
    second_runs.WaitForNotification();
  });
  queue_->Push({.tenant = "a", .ticket = 2}, [&] {
    second_runs.Notify();
    first_runs.WaitForNotification();
  });
  queue_.reset();
}

}  // namespace
}  // namespace foretoken::verifier
