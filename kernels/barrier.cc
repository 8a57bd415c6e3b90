// SPDX-License-Identifier: Apache-2.0
#include "kernels/barrier.h"

#include "kernels/pause.h"

namespace foretoken::kernels {
namespace {

constexpr int kNumSpins = 500;

}  // namespace

void Barrier::Wait() {
  const uint32_t meeting = meeting_.load();  // cannot end before this thread arrives
  if (num_present_.fetch_add(1) + 1 == num_threads_) {
    num_present_.store(0);
    meeting_.fetch_add(1);
    meeting_.notify_all();
    return;
  }
  for (int spin = 0; spin < kNumSpins; ++spin) {
    if (meeting_.load() != meeting) return;
    Pause();
  }
  meeting_.wait(meeting);
}

}  // namespace foretoken::kernels
