// SPDX-License-Identifier: Apache-2.0
// The unfinished copies of an emulated thread (cp.async). The target of a copy holds ones in every bit until the thread
// waits for the copy.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace foretoken::testing {

class CopyGroups {
 public:
  // Copies num_bytes of the 16 and zeroes the rest.
  void Copy16(void* to, const void* from, size_t num_bytes) {
    std::memset(to, 0xff, 16);
    open_.push_back({to, from, num_bytes});
  }

  void Commit() {
    committed_.push_back(std::move(open_));
    open_.clear();
  }

  void WaitForAllBut(size_t num_pending) {
    for (; committed_.size() > num_pending; committed_.pop_front()) {
      for (const PendingCopy& copy : committed_.front()) {
        std::memset(copy.to, 0, 16);
        if (copy.num_bytes > 0) std::memcpy(copy.to, copy.from, copy.num_bytes);
      }
    }
  }

 private:
  struct PendingCopy {
    void* to;
    const void* from;
    size_t num_bytes;
  };

  std::vector<PendingCopy> open_;
  std::deque<std::vector<PendingCopy>> committed_;
};

// The copies of the running thread.
CopyGroups& CopiesOfThread();

}  // namespace foretoken::testing
