// SPDX-License-Identifier: Apache-2.0
// The queue of slow work. If this test fails, requests are encoded out of order, or a cancelled call still runs or
// keeps its memory.
#include "common/base/work_queue.h"

#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace foretoken::base {
namespace {

TEST(WorkQueue, WorksInTheOrderOfNumbers) {
  std::vector<int> order;
  {
    WorkQueue queue(1);
    absl::Notification begin;
    queue.Push(1, [&] { begin.WaitForNotification(); });
    queue.Push(3, [&] { order.push_back(3); });
    queue.Push(2, [&] { order.push_back(2); });
    begin.Notify();
  }
  EXPECT_EQ(order, (std::vector<int>{2, 3}));
}

TEST(WorkQueue, RemovedWorkIsGoneAtOnce) {
  bool is_done = false;
  {
    WorkQueue queue(1);
    absl::Notification runs, end;
    queue.Push(1, [&] {
      runs.Notify();
      end.WaitForNotification();
    });
    runs.WaitForNotification();
    EXPECT_FALSE(queue.Remove(1)) << "the work has begun";
    auto held = std::make_shared<int>(0);
    queue.Push(2, [&is_done, held] { is_done = true; });
    EXPECT_EQ(held.use_count(), 2);
    EXPECT_TRUE(queue.Remove(2));
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_FALSE(queue.Remove(2));
    end.Notify();
  }
  EXPECT_FALSE(is_done);
}

}  // namespace
}  // namespace foretoken::base
