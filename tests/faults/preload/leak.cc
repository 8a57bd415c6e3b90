// SPDX-License-Identifier: Apache-2.0
// A library to preload. It makes a process leak LEAK_BYTES_PER_SECOND, so that a test can show that its check for
// growing memory finds a leak.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr int kLeaksPerSecond = 10;

struct Leak {
  Leak() {
    const char* rate = std::getenv("LEAK_BYTES_PER_SECOND");
    const size_t num_bytes = rate == nullptr ? 0 : std::strtoull(rate, nullptr, 10) / kLeaksPerSecond;
    std::thread([num_bytes] {
      for (;; usleep(1'000'000 / kLeaksPerSecond)) {
        if (void* bytes = std::malloc(num_bytes)) std::memset(bytes, 1, num_bytes);
      }
    }).detach();
  }
};

const Leak leak;

}  // namespace
