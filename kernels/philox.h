// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator behind every random choice: a pure function of (key, counter).
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
//
// The noise of tokens: key = seed, counter = (v / 4, t, sample index, purpose); word v % 4 belongs to token v.
#pragma once

#include <array>
#include <cstdint>

namespace foretoken::kernels {

// Two purposes never share a stream.
enum class NoisePurpose : uint32_t { kTargetDraw = 0, kDraftDraw = 1, kRejectionCoin = 2 };

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock Philox4x32(uint64_t key, PhiloxBlock counter) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace foretoken::kernels
