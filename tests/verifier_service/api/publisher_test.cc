// SPDX-License-Identifier: Apache-2.0
// The way of outputs from the engine to their calls. If this test fails, outputs pile up without a bound, or get lost.
#include "verifier_service/api/publisher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace foretoken::verifier {
namespace {

std::vector<SampleOutput> Batch(int32_t sample_index) {
  std::vector<SampleOutput> batch(1);
  batch[0].ticket = 7;
  batch[0].sample_index = sample_index;
  return batch;
}

TEST(Publisher, WaitsWhileTooMuchIsUndeliveredAndLosesNothing) {
  constexpr int kNumBatches = 3 * Publisher::kMaxBatches;
  absl::Notification first_came, go_on, all_came;
  std::vector<int32_t> delivered;
  Publisher publisher;
  publisher.Subscribe(7, [&](SampleOutput output) {
    delivered.push_back(output.sample_index);
    if (delivered.size() == 1) {
      first_came.Notify();
      go_on.WaitForNotification();
    }
    if (delivered.size() == kNumBatches) all_came.Notify();
  });
  std::atomic<int> num_published = 0;
  publisher.Publish(Batch(0));
  first_came.WaitForNotification();  // the publisher took this batch and holds no other one
  std::thread engine([&] {
    for (int i = 1; i < kNumBatches; ++i) {
      publisher.Publish(Batch(i));
      ++num_published;
    }
  });
  while (num_published < static_cast<int>(Publisher::kMaxBatches)) std::this_thread::yield();
  absl::SleepFor(absl::Milliseconds(50));  // in which an engine that does not wait would publish more
  EXPECT_EQ(num_published, Publisher::kMaxBatches);
  go_on.Notify();
  all_came.WaitForNotification();
  engine.join();
  for (int i = 0; i < kNumBatches; ++i) ASSERT_EQ(delivered[i], i);
}

}  // namespace
}  // namespace foretoken::verifier
