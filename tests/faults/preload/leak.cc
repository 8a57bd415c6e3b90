// SPDX-License-Identifier: Apache-2.0
// A library to preload. It makes a process leak 10 MiB per second, so that a test can show that its check for growing
// memory finds a leak.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr size_t kLeakedBytes = size_t{1} << 20;
constexpr useconds_t kEveryMicroseconds = 100'000;

struct Leak {
  Leak() {
    std::thread([] {
      for (;; usleep(kEveryMicroseconds)) {
        if (void* bytes = std::malloc(kLeakedBytes)) std::memset(bytes, 1, kLeakedBytes);
      }
    }).detach();
  }
};

const Leak leak;

}  // namespace
