// SPDX-License-Identifier: Apache-2.0
// The places of a bounded queue. A place is free again when it is destroyed.
//
//   if (WorkPlaces::Place place = places.Take(); place != nullptr) ...
//
// Threads: any. Lifetime: the WorkPlaces object outlives every Place that Take returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace foretoken::base {

class WorkPlaces {
 private:
  struct Leave {
    void operator()(std::atomic<int32_t>* num_taken) const { num_taken->fetch_sub(1); }
  };

 public:
  using Place = std::unique_ptr<std::atomic<int32_t>, Leave>;

  explicit WorkPlaces(int32_t most) : most_(most) {}
  int32_t most() const { return most_; }
  // Null if all places are taken.
  Place Take() {
    Place place(&num_taken_);
    if (num_taken_.fetch_add(1) >= most_) place.reset();
    return place;
  }

 private:
  const int32_t most_;
  std::atomic<int32_t> num_taken_{0};
};

}  // namespace foretoken::base
