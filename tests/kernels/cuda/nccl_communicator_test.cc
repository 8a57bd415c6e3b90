// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each; skipped if there are fewer than two GPUs. If this test fails, a model on several GPUs hangs or
// emits wrong tokens.
#include "kernels/cuda/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "kernels/cuda/base/check.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kMaxRanks = 3;

// A rank's GPU as its thread uses it: integers, copied both ways and waited for.
class RankMemory {
 public:
  explicit RankMemory(const NcclPlace& place) : place_(place) { FT_CUDA_CHECK(cudaSetDevice(place.device)); }
  ~RankMemory() { FT_CUDA_CHECK(cudaFree(data_)); }

  int* Upload(const std::vector<int>& values) {
    FT_CUDA_CHECK(cudaFree(data_));
    FT_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), values.size() * sizeof(int)));
    Copy(data_, values.data(), values.size(), cudaMemcpyHostToDevice);
    return data_;
  }
  std::vector<int> Download(size_t count) {
    std::vector<int> values(count);
    Copy(values.data(), data_, count, cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  void Copy(void* to, const void* from, size_t count, cudaMemcpyKind kind) {
    FT_CUDA_CHECK(cudaMemcpyAsync(to, from, count * sizeof(int), kind, place_.stream));
    FT_CUDA_CHECK(cudaStreamSynchronize(place_.stream));
  }

  const NcclPlace place_;
  int* data_ = nullptr;
};

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int num_devices = 0;
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices < 2) GTEST_SKIP() << "fewer than two GPUs";
    LoadedNccl loaded = LoadNccl(FORETOKEN_NCCL);
    ASSERT_TRUE(loaded.library.has_value()) << loaded.error;
    nccl_ = *loaded.library;
    for (int device = 0; device < std::min(num_devices, kMaxRanks); ++device) {
      places_.push_back({.device = device});
      FT_CUDA_CHECK(cudaSetDevice(device));
      FT_CUDA_CHECK(cudaStreamCreateWithFlags(&places_.back().stream, cudaStreamNonBlocking));
    }
  }
  void TearDown() override {
    for (const NcclPlace& place : places_) FT_CUDA_CHECK(cudaStreamDestroy(place.stream));
  }

  // Calls run(communicator, memory) on a thread per rank.
  void OnRanks(const std::function<void(Communicator&, RankMemory&)>& run) {
    const MadeCommunicators made = MakeNcclCommunicators(places_, nccl_);
    ASSERT_EQ(made.communicators.size(), places_.size()) << made.error;
    std::vector<std::thread> threads;
    for (const auto& communicator : made.communicators) {
      threads.emplace_back([&] {
        RankMemory memory(places_[communicator->rank()]);
        run(*communicator, memory);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  NcclLibrary nccl_;
  std::vector<NcclPlace> places_;
};

TEST_F(NcclCommunicatorTest, AllGatherMovesEveryPieceToEveryRankInRankOrder) {
  OnRanks([&](Communicator& communicator, RankMemory& memory) {
    const int num_ranks = communicator.num_ranks();
    ASSERT_EQ(num_ranks, places_.size());
    for (int round = 0; round < 100; ++round) {
      const size_t count = 1 + round % 37;
      std::vector<int> pieces(num_ranks * count, -1);
      for (size_t i = 0; i < count; ++i) pieces[communicator.rank() * count + i] = communicator.rank() * 1000 + round;
      communicator.AllGather(memory.Upload(pieces), count * sizeof(int));
      pieces = memory.Download(pieces.size());
      for (size_t i = 0; i < pieces.size(); ++i) {
        ASSERT_EQ(pieces[i], static_cast<int>(i / count) * 1000 + round) << "rank " << communicator.rank();
      }
    }
  });
}

TEST_F(NcclCommunicatorTest, GatherToFirstMovesEveryPieceToRankZeroAlone) {
  OnRanks([](Communicator& communicator, RankMemory& memory) {
    for (int round = 0; round < 100; ++round) {
      std::vector<int> pieces(communicator.num_ranks(), -1);
      pieces[0] = communicator.rank() * 1000 + round;
      std::vector<int> expected = pieces;
      for (int rank = 0; rank < communicator.num_ranks() && communicator.rank() == 0; ++rank) {
        expected[rank] = rank * 1000 + round;
      }
      communicator.GatherToFirst(memory.Upload(pieces), sizeof(int));
      ASSERT_EQ(memory.Download(pieces.size()), expected) << "rank " << communicator.rank();
    }
  });
}

TEST_F(NcclCommunicatorTest, OneGpuForTwoRanksIsRefusedInNcclsWords) {
  places_[1].device = places_[0].device;
  const MadeCommunicators made = MakeNcclCommunicators(places_, nccl_);
  EXPECT_TRUE(made.communicators.empty());
  EXPECT_THAT(made.error, ::testing::HasSubstr("invalid"));
}

TEST(LoadNccl, NamesAMissingLibraryOrFunction) {
  const LoadedNccl nowhere = LoadNccl("libno_such_nccl.so");
  EXPECT_FALSE(nowhere.library.has_value());
  EXPECT_THAT(nowhere.error, ::testing::HasSubstr("libno_such_nccl.so"));
  const LoadedNccl other = LoadNccl("libm.so.6");
  EXPECT_FALSE(other.library.has_value());
  EXPECT_EQ(other.error, "NCCL: libm.so.6 has no ncclCommInitAll");
}

}  // namespace
}  // namespace foretoken::kernels::cuda
