// SPDX-License-Identifier: Apache-2.0
// The numbers 0, 1, ... size - 1 in a pseudo-random order. Equal seeds give equal orders. The i-th number is
// (first + i * stride) modulo size, where stride and size have no common factor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>

namespace foretoken::testing {

class RandomOrder {
 public:
  RandomOrder(size_t size, std::minstd_rand& random) : size_(size), first_(random() % size), stride_(random() % size) {
    while (std::gcd(stride_, size_) != 1) ++stride_;
  }

  size_t operator[](size_t i) const { return (first_ + i * stride_) % size_; }

 private:
  size_t size_;
  size_t first_;
  size_t stride_;
};

}  // namespace foretoken::testing
