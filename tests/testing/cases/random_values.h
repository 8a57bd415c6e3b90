// SPDX-License-Identifier: Apache-2.0
// Random test data, the same on every machine and standard library, and the value that random numbers never have.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace foretoken::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RandomValues {
 public:
  explicit RandomValues(uint32_t seed) : engine_(seed) {}

  double Uniform() { return (engine_() + 0.5) * 0x1p-32; }
  int32_t Below(int32_t bound) { return static_cast<int32_t>(Uniform() * bound); }
  bool Coin(double chance) { return Uniform() < chance; }
  float Normal() {
    return static_cast<float>(std::sqrt(-2 * std::log(Uniform())) * std::cos(6.283185307179586 * Uniform()));
  }
  std::vector<float> Normals(size_t count, float scale = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = Normal() * scale;
    return values;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace foretoken::testing
