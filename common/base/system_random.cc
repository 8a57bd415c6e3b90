// SPDX-License-Identifier: Apache-2.0
#include "common/base/system_random.h"

#include <unistd.h>

#include "kernels/check.h"

namespace foretoken::base {

uint64_t SystemRandomBits() {
  uint64_t bits = 0;
  FT_CHECK(getentropy(&bits, sizeof(bits)) == 0);  // fails only if the operating system has no generator
  return bits;
}

}  // namespace foretoken::base
