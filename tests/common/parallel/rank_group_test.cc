// SPDX-License-Identifier: Apache-2.0
// The threads of tensor-parallel ranks. If this test fails, a tensor-parallel server hangs or reads unfinished results.
#include "common/parallel/rank_group.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/make_backend.h"

namespace foretoken::parallel {
namespace {

std::unique_ptr<RankGroup> MakeGroup(int num_ranks) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  for (int rank = 0; rank < num_ranks; ++rank) {
    backends.push_back(kernels::MakeBackend({.num_threads = 1, .rank = rank, .num_ranks = num_ranks}).backend);
  }
  return RankGroup::Make("cpu", std::move(backends)).value();
}

TEST(RankGroup, RunsEveryRankOnAThreadOfItsOwnRankZeroOnTheCallers) {
  for (const int num_ranks : {1, 2, 4}) {
    const std::unique_ptr<RankGroup> group = MakeGroup(num_ranks);
    std::vector<std::thread::id> first(num_ranks), again(num_ranks);  // not atomic: Run's return orders the writes
    group->Run([&](int rank) { first[rank] = std::this_thread::get_id(); });
    EXPECT_EQ(first[0], std::this_thread::get_id());
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (int other = 0; other < rank; ++other) EXPECT_NE(first[rank], first[other]);
    }
    for (int i = 0; i < 1000; ++i) group->Run([&](int rank) { again[rank] = std::this_thread::get_id(); });
    EXPECT_EQ(again, first);
  }
}

TEST(RankGroup, RanksReachEachOtherAndASingleRankHasNoCommunicator) {
  EXPECT_EQ(MakeGroup(1)->communicator(0), nullptr);
  const std::unique_ptr<RankGroup> group = MakeGroup(3);
  group->Run([&](int rank) {
    EXPECT_EQ(group->communicator(rank)->rank(), rank);
    EXPECT_EQ(group->communicator(rank)->num_ranks(), 3);
    std::vector<int> pieces(3, -1);
    pieces[rank] = 10 * rank;
    group->communicator(rank)->AllGather(pieces.data(), sizeof(int));
    EXPECT_EQ(pieces, (std::vector<int>{0, 10, 20}));
  });
}

}  // namespace
}  // namespace foretoken::parallel
