// SPDX-License-Identifier: Apache-2.0
// How threads that work in step wait for each other: they spin for a moment, because what they wait for follows within
// microseconds, then sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace foretoken::kernels {

// For the processor: this is a spinning loop.
void Pause();

// Pauses that a spinning thread makes before it sleeps: 20 to 80 us, longer than the gap between two ops of a step,
// shorter than anyone would notice.
inline constexpr int kNumSpins = 2000;

// Returns the value of `number` once it is not `seen`. Whoever changes it calls notify_all.
uint32_t AwaitChange(const std::atomic<uint32_t>& number, uint32_t seen);

}  // namespace foretoken::kernels
