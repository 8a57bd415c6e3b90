// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_communicator.h"

#include "kernels/barrier.h"

namespace foretoken::kernels {
namespace {

// The state that all ranks share.
struct Meeting {
  explicit Meeting(size_t num_ranks) : barrier(static_cast<int>(num_ranks)), pieces(num_ranks) {}

  Barrier barrier;
  std::vector<const std::byte*> pieces;  // one per rank: the rank writes it before a meeting, all ranks read it after
};

class ThreadCommunicator final : public Communicator {
 public:
  // Shared: the last rank frees it.
  ThreadCommunicator(int rank, Backend& backend, std::shared_ptr<Meeting> meeting)
      : rank_(rank), backend_(backend), meeting_(std::move(meeting)) {}

  int rank() const override { return rank_; }
  int num_ranks() const override { return static_cast<int>(meeting_->pieces.size()); }
  bool is_recordable() const override { return false; }  // ranks wait for each other on the host

  void AllGather(void* pieces, size_t num_bytes) override {
    auto* own = static_cast<std::byte*>(pieces);
    Exchange(own + rank_ * num_bytes, own, num_bytes);
  }

  void GatherToFirst(void* pieces, size_t num_bytes) override {
    auto* own = static_cast<std::byte*>(pieces);
    Exchange(own, rank_ == 0 ? own : nullptr, num_bytes);
  }

 private:
  // `all` is null on a rank that receives nothing.
  void Exchange(const std::byte* own, std::byte* all, size_t num_bytes) {
    meeting_->pieces[rank_] = own;
    backend_.Synchronize();  // the piece has been written
    meeting_->barrier.Wait();
    for (int rank = 0; rank < num_ranks() && all != nullptr; ++rank) {
      if (rank != rank_) backend_.Copy(all + rank * num_bytes, meeting_->pieces[rank], num_bytes, CopyKind::kOnDevice);
    }
    backend_.Synchronize();  // the pieces have been read
    meeting_->barrier.Wait();
  }

  const int rank_;
  Backend& backend_;
  const std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(std::span<Backend* const> backends) {
  const auto meeting = std::make_shared<Meeting>(backends.size());
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (size_t rank = 0; rank < backends.size(); ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(static_cast<int>(rank), *backends[rank], meeting));
  }
  return communicators;
}

}  // namespace foretoken::kernels
