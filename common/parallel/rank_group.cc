// SPDX-License-Identifier: Apache-2.0
#include "common/parallel/rank_group.h"

#include <utility>

#include "kernels/check.h"
#include "kernels/thread_communicator.h"

namespace foretoken::parallel {

RankGroup::RankGroup(std::vector<std::unique_ptr<kernels::Backend>> backends)
    : backends_(std::move(backends)), barrier_(static_cast<int>(backends_.size())) {
  FT_CHECK(!backends_.empty());
  if (num_ranks() == 1) return;
  std::vector<kernels::Backend*> by_rank;
  for (const auto& backend : backends_) by_rank.push_back(backend.get());
  communicators_ = kernels::MakeThreadCommunicators(by_rank);
  for (int rank = 1; rank < num_ranks(); ++rank) threads_.emplace_back([this, rank] { Work(rank); });
}

RankGroup::~RankGroup() {
  if (threads_.empty()) return;
  work_ = nullptr;
  barrier_.Wait();
  for (std::thread& thread : threads_) thread.join();
}

void RankGroup::Run(const std::function<void(int rank)>& work) {
  if (threads_.empty()) return work(0);
  work_ = &work;
  barrier_.Wait();
  work(0);
  barrier_.Wait();
}

void RankGroup::Work(int rank) {
  for (;;) {
    barrier_.Wait();
    if (work_ == nullptr) return;
    (*work_)(rank);
    barrier_.Wait();
  }
}

}  // namespace foretoken::parallel
