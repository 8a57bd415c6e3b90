// SPDX-License-Identifier: Apache-2.0
#include "kernels/await_change.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foretoken::kernels {

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits about as long; its yield does nothing on most cores
#endif
}

uint32_t AwaitChange(const std::atomic<uint32_t>& number, uint32_t seen) {
  for (int spin = 0; spin < kNumSpins; ++spin) {
    const uint32_t now = number.load();
    if (now != seen) return now;
    Pause();
  }
  number.wait(seen);
  return number.load();
}

}  // namespace foretoken::kernels
