// SPDX-License-Identifier: Apache-2.0
// The tensor-parallel ranks of one process: a backend, a thread and a communicator each. Rank 0's thread is whoever
// calls, so a group of one is a backend and nothing else.
//
//   RankGroup ranks(std::move(backends));
//   ranks.Run([&](int rank) { ... ranks.backend(rank) ... ranks.communicator(rank) ... });
//
// Threads: one caller of Run at a time.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/barrier.h"
#include "kernels/communicator.h"

namespace foretoken::parallel {

class RankGroup {
 public:
  // One rank per backend; at least one.
  explicit RankGroup(std::vector<std::unique_ptr<kernels::Backend>> backends);
  ~RankGroup();

  int num_ranks() const { return static_cast<int>(backends_.size()); }
  kernels::Backend& backend(int rank) const { return *backends_[rank]; }
  // Null in a group of one: there is nobody to talk to.
  kernels::Communicator* communicator(int rank) const {
    return communicators_.empty() ? nullptr : communicators_[rank].get();
  }

  // Calls work(rank) on every rank's own thread; returns when all are done.
  void Run(const std::function<void(int rank)>& work);

 private:
  void Work(int rank);

  const std::vector<std::unique_ptr<kernels::Backend>> backends_;
  std::vector<std::unique_ptr<kernels::Communicator>> communicators_;
  kernels::Barrier barrier_;
  const std::function<void(int rank)>* work_ = nullptr;  // null at a meeting: the threads end
  std::vector<std::thread> threads_;                     // of ranks 1, 2, ...
};

}  // namespace foretoken::parallel
