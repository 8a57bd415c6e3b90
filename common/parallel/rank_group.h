// SPDX-License-Identifier: Apache-2.0
// The tensor-parallel ranks of one process: each has a backend, a thread and a communicator. Rank 0 runs on the
// caller's thread, so a group of one is only a backend.
//
//   FT_ASSIGN_OR_RETURN(const auto ranks, RankGroup::Make("cpu", std::move(backends)));
//   ranks->Run([&](int rank) { ... ranks->backend(rank) ... ranks->communicator(rank) ... });
//
// Threads: one caller of Run at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/barrier.h"
#include "kernels/communicator.h"

namespace foretoken::parallel {

class RankGroup {
 public:
  // Makes one rank per backend; there must be at least one. All backends were made for `device`.
  // Errors: FAILED_PRECONDITION if the ranks cannot reach each other.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Make(const std::string& device,
                                                         std::vector<std::unique_ptr<kernels::Backend>> backends);
  ~RankGroup();

  int num_ranks() const { return static_cast<int>(backends_.size()); }
  kernels::Backend& backend(int rank) const { return *backends_[rank]; }
  // Null in a group of one, which has no other rank to reach.
  kernels::Communicator* communicator(int rank) const {
    return communicators_.empty() ? nullptr : communicators_[rank].get();
  }

  // Calls work(rank) on every rank's own thread, and returns when all are done.
  void Run(const std::function<void(int rank)>& work);

 private:
  RankGroup(std::vector<std::unique_ptr<kernels::Backend>> backends,
            std::vector<std::unique_ptr<kernels::Communicator>> communicators);
  void Work(int rank);

  const std::vector<std::unique_ptr<kernels::Backend>> backends_;
  const std::vector<std::unique_ptr<kernels::Communicator>> communicators_;
  kernels::Barrier barrier_;
  const std::function<void(int rank)>* work_ = nullptr;  // null at a barrier: the threads end
  std::vector<std::thread> threads_;                     // one each for ranks 1, 2, ...
};

}  // namespace foretoken::parallel
