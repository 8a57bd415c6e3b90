// SPDX-License-Identifier: Apache-2.0
// Tells the processor that this is a spinning loop.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foretoken::kernels {

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits about as long as x86's pause; `yield` does nothing on most cores
#endif
}

}  // namespace foretoken::kernels
