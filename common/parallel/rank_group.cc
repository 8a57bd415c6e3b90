// SPDX-License-Identifier: Apache-2.0
#include "common/parallel/rank_group.h"

#include <utility>

#include "absl/memory/memory.h"
#include "kernels/check.h"
#include "kernels/make_backend.h"

namespace foretoken::parallel {

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Make(const std::string& device,
                                                           std::vector<std::unique_ptr<kernels::Backend>> backends) {
  FT_CHECK(!backends.empty());
  kernels::MadeCommunicators made;
  if (backends.size() > 1) {
    std::vector<kernels::Backend*> by_rank;
    by_rank.reserve(backends.size());
    for (const auto& backend : backends) by_rank.push_back(backend.get());
    made = kernels::MakeCommunicators(device, by_rank);
    if (made.communicators.empty()) return absl::FailedPreconditionError(made.error);
  }
  return absl::WrapUnique(new RankGroup(std::move(backends), std::move(made.communicators)));
}

RankGroup::RankGroup(std::vector<std::unique_ptr<kernels::Backend>> backends,
                     std::vector<std::unique_ptr<kernels::Communicator>> communicators)
    : backends_(std::move(backends)),
      communicators_(std::move(communicators)),
      barrier_(static_cast<int>(backends_.size())) {
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
