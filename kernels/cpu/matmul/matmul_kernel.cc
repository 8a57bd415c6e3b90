// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_kernel.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/matmul/weight.h"

namespace foretoken::kernels::cpu {

void PackBf16(const PackArgs& args) {
  constexpr int64_t kGroupRows = 16;
  constexpr size_t kLineBytes = kInputsPadding * sizeof(uint16_t);
  auto* packed = static_cast<char*>(args.packed);
  for (int64_t first = 0; first < args.num_rows; first += kGroupRows) {
    const int64_t end = std::min(first + kGroupRows, args.num_rows);
    for (int64_t begin = 0; begin < args.padded_num_inputs; begin += kInputsPadding) {
      const int64_t count = std::min<int64_t>(kInputsPadding, args.num_inputs - begin);
      for (int64_t r = first; r < end; ++r, packed += kLineBytes) {
        const uint16_t* x = args.x + r * args.num_inputs + begin;
        if (count == kInputsPadding) {
          std::memcpy(packed, x, kLineBytes);
        } else {
          std::memset(packed, 0, kLineBytes);
          std::memcpy(packed, x, count * sizeof(uint16_t));
        }
      }
    }
  }
}

}  // namespace foretoken::kernels::cpu
