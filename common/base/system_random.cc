// SPDX-License-Identifier: Apache-2.0
#include "common/base/system_random.h"

#include <unistd.h>

#include <array>

#include "kernels/check.h"

namespace foretoken::base {

uint64_t SystemRandomBits() {
  // The system takes longer for a call than for its numbers, and a traced step needs an id for each of its spans.
  constexpr size_t kNumNumbers = 32;  // 256 bytes, the most that one call gives
  thread_local std::array<uint64_t, kNumNumbers> numbers;
  thread_local size_t num_left = 0;
  if (num_left == 0) {
    FT_CHECK(getentropy(numbers.data(), sizeof(numbers)) == 0);  // fails only if the system has no generator
    num_left = kNumNumbers;
  }
  return numbers[--num_left];
}

}  // namespace foretoken::base
