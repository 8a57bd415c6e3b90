// SPDX-License-Identifier: Apache-2.0
// Communication between ranks that are threads. If this test fails, a tensor-parallel CPU server hangs or emits wrong
// tokens.
#include "kernels/thread_communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "kernels/make_backend.h"

namespace foretoken::kernels {
namespace {

// Calls run(communicator) on a thread per rank.
void OnRanks(int num_ranks, const std::function<void(Communicator&)>& run) {
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<Backend*> by_rank;
  for (int rank = 0; rank < num_ranks; ++rank) {
    backends.push_back(MakeBackend({.num_threads = 1}).backend);
    by_rank.push_back(backends.back().get());
  }
  const auto communicators = MakeThreadCommunicators(by_rank);
  std::vector<std::thread> threads;
  threads.reserve(communicators.size());
  for (const auto& communicator : communicators) threads.emplace_back([&] { run(*communicator); });
  for (std::thread& thread : threads) thread.join();
}

// Sizes change from call to call, and a rank overwrites its piece as soon as it may.
TEST(ThreadCommunicator, AllGatherMovesEveryPieceToEveryRankInRankOrder) {
  for (const int num_ranks : {1, 2, 4}) {
    OnRanks(num_ranks, [&](Communicator& communicator) {
      ASSERT_EQ(communicator.num_ranks(), num_ranks);
      for (int round = 0; round < 500; ++round) {
        const size_t count = 1 + round % 37;
        std::vector<int> pieces(num_ranks * count, -1);
        for (size_t i = 0; i < count; ++i) pieces[communicator.rank() * count + i] = communicator.rank() * 1000 + round;
        communicator.AllGather(pieces.data(), count * sizeof(int));
        for (size_t i = 0; i < pieces.size(); ++i) {
          ASSERT_EQ(pieces[i], static_cast<int>(i / count) * 1000 + round) << "rank " << communicator.rank();
        }
      }
    });
  }
}

TEST(ThreadCommunicator, GatherToFirstMovesEveryPieceToRankZeroAlone) {
  OnRanks(3, [](Communicator& communicator) {
    for (int round = 0; round < 500; ++round) {
      std::vector<int> pieces = {communicator.rank() * 1000 + round, -1, -1};
      communicator.GatherToFirst(pieces.data(), sizeof(int));
      if (communicator.rank() == 0) {
        ASSERT_EQ(pieces, (std::vector<int>{round, 1000 + round, 2000 + round}));
      } else {
        ASSERT_EQ(pieces, (std::vector<int>{communicator.rank() * 1000 + round, -1, -1}));
      }
    }
  });
}

}  // namespace
}  // namespace foretoken::kernels
