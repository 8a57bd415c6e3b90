// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/nccl_communicator.h"

#include <cstddef>
#include <string>

#include "kernels/device_failure.h"

// Calls NCCL; an error ends the process.
#define FT_NCCL_CHECK(call) Check((call), #call, __LINE__)

namespace foretoken::kernels::cuda {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(int rank, int num_ranks, ncclComm_t comm, cudaStream_t stream, const NcclLibrary& nccl)
      : rank_(rank), num_ranks_(num_ranks), comm_(comm), stream_(stream), nccl_(nccl) {}
  ~NcclCommunicator() override { nccl_.comm_destroy(comm_); }

  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  bool is_recordable() const override { return true; }

  void AllGather(void* pieces, size_t num_bytes) override {
    CheckPeers();
    const void* own = static_cast<std::byte*>(pieces) + rank_ * num_bytes;  // in its place, so nothing is copied to
                                                                            // itself
    FT_NCCL_CHECK(nccl_.all_gather(own, pieces, num_bytes, ncclUint8, comm_, stream_));
  }

  void GatherToFirst(void* pieces, size_t num_bytes) override {
    CheckPeers();
    if (rank_ != 0) {
      FT_NCCL_CHECK(nccl_.send(pieces, num_bytes, ncclUint8, 0, comm_, stream_));
      return;
    }
    FT_NCCL_CHECK(nccl_.group_start());
    for (int peer = 1; peer < num_ranks_; ++peer) {
      void* const piece = static_cast<std::byte*>(pieces) + peer * num_bytes;
      FT_NCCL_CHECK(nccl_.recv(piece, num_bytes, ncclUint8, peer, comm_, stream_));
    }
    FT_NCCL_CHECK(nccl_.group_end());
  }

 private:
  // Finds errors of earlier calls: NCCL finishes a call's work long after the call returned.
  void CheckPeers() {
    ncclResult_t result = ncclSuccess;
    FT_NCCL_CHECK(nccl_.comm_get_async_error(comm_, &result));
    Check(result, "an operation that was enqueued before", __LINE__);
  }

  void Check(ncclResult_t result, const char* call, int line) const {
    if (result == ncclSuccess) [[likely]]
      return;
    EndOnDeviceFailure(std::string(__FILE__) + ":" + std::to_string(line) + ": " + call + ": " +
                       nccl_.get_error_string(result) + ", rank " + std::to_string(rank_));
  }

  const int rank_;
  const int num_ranks_;
  const ncclComm_t comm_;
  const cudaStream_t stream_;
  const NcclLibrary nccl_;
};

}  // namespace

MadeCommunicators MakeNcclCommunicators(std::span<const NcclPlace> places, const NcclLibrary& nccl) {
  const auto num_ranks = static_cast<int>(places.size());
  std::vector<int> devices;
  for (const NcclPlace& place : places) devices.push_back(place.device);
  std::vector<ncclComm_t> comms(places.size());
  if (const ncclResult_t result = nccl.comm_init_all(comms.data(), num_ranks, devices.data()); result != ncclSuccess) {
    return {{}, "NCCL: " + std::to_string(num_ranks) + " GPUs: " + nccl.get_error_string(result)};
  }
  MadeCommunicators made;
  for (int rank = 0; rank < num_ranks; ++rank) {
    made.communicators.push_back(
        std::make_unique<NcclCommunicator>(rank, num_ranks, comms[rank], places[rank].stream, nccl));
  }
  return made;
}

}  // namespace foretoken::kernels::cuda
