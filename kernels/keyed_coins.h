// SPDX-License-Identifier: Apache-2.0
// The coins of rejection sampling: pure functions of (key, sample index, index of the token, number of the coin). Coin
// n of the token at index t is the first 53 bits of the Philox block with this key and counter = (n, t, sample index,
// kRejectionCoin), as a fraction in [0, 1).
//
// A coin must not be tossed twice, in another request either: a proposer that remembers the text that a coin drew would
// guess it, and a guess that the same coin then tests is accepted by where its token lies and not by its probability.
// So the key is SamplingParams::coin_key, in which a request that may speculate has a nonce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/host_device.h"
#include "kernels/ops.h"
#include "kernels/philox.h"
#include "kernels/target_residual.h"

namespace foretoken::kernels {

// Returns an index with probability weight / sum of weights: the entry where u times the sum falls. Weights are at
// least 0 and have a positive sum; u lies in [0, 1).
inline int32_t IndexAt(std::span<const double> weights, double u) {
  // It finds the block first and then the entry, so that a large vocabulary is summed in a few long chains.
  constexpr size_t kBlock = 512;
  double left = u * SumOf(weights);
  size_t begin = 0;
  while (begin + kBlock < weights.size()) {
    const double sum = SumOf(weights.subspan(begin, kBlock));
    if (left < sum) break;
    left -= sum;
    begin += kBlock;
  }
  std::optional<size_t> last;
  for (size_t i = begin; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    if (left < weights[i]) break;
    left -= weights[i];
  }
  // Rounding may leave a remainder behind the last entry, or point behind it.
  for (size_t i = begin; !last.has_value() && i-- > 0;) {
    if (weights[i] > 0) last = i;
  }
  return static_cast<int32_t>(last.value_or(0));
}

class KeyedCoins {
 public:
  FT_HOST_DEVICE KeyedCoins(uint64_t key, uint32_t sample_index) : key_(key), sample_index_(sample_index) {}

  FT_HOST_DEVICE void Begin(uint32_t t) {
    t_ = t;
    num_used_ = 0;
  }
  // In [0, 1).
  FT_HOST_DEVICE double Toss() {
    const PhiloxBlock block =
        Philox4x32(key_, {num_used_++, t_, sample_index_, static_cast<uint32_t>(NoisePurpose::kRejectionCoin)});
    return static_cast<double>((uint64_t{block[0]} << 32 | block[1]) >> 11) * 0x1p-53;
  }
  FT_HOST_DEVICE bool Accept(double target_prob, double draft_prob) { return Toss() * draft_prob < target_prob; }
  int32_t Draw(std::span<const double> weights) { return IndexAt(weights, Toss()); }

 private:
  uint64_t key_;
  uint32_t sample_index_;
  uint32_t t_ = 0;
  uint32_t num_used_ = 0;
};

}  // namespace foretoken::kernels
