// SPDX-License-Identifier: Apache-2.0
// Which samples run and which K/V blocks they hold. If this test fails, a request never begins, a running one loses its
// K/V to a guess, or the server runs out of memory that nobody uses.
#include "verifier_service/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kBlockTokens = kernels::kKvBlockSize;

class SchedulerTest : public ::testing::Test {
 protected:
  static absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }
  // A request whose prompt fills so many blocks.
  static GenerationRequest Request(const std::string& id, int32_t num_blocks, int32_t priority = 0) {
    std::vector<int32_t> prompt(num_blocks * kBlockTokens);
    std::iota(prompt.begin(), prompt.end(), static_cast<int32_t>(id.front()) * 1000);
    return {.request_id = id, .priority = priority, .prompt = std::move(prompt), .stop = {.max_tokens = 64}};
  }
  void Enqueue(Scheduler& scheduler, GenerationRequest request) {
    scheduler.Enqueue(sequences_.MakeRequest(std::move(request)), At(0));
  }
  std::vector<std::string> Admit(Scheduler& scheduler) {
    std::vector<std::string> ids;
    for (const Sequence* sequence :
         scheduler.Admit(At(1), [this](const auto& active) { return sequences_.Make(active); })) {
      ids.push_back(sequence->request().request_id);
    }
    return ids;
  }
  // As if the whole prompt had been computed and so many tokens emitted.
  static void Decode(Sequence& sequence, int32_t num_tokens) {
    sequence.token_ids.resize(sequence.token_ids.size() + num_tokens, 1);
    sequence.num_computed = sequence.size() - 1;
  }
  // A request runs and ends, and its prompt stays in the cache.
  void LeaveThreeCachedBlocks(Scheduler& scheduler) {
    Enqueue(scheduler, Request("a", 3));
    ASSERT_THAT(Admit(scheduler), ElementsAre("a"));
    Decode(*scheduler.running()[0], 1);
    scheduler.CacheAndTrim(*scheduler.running()[0]);
    scheduler.running()[0]->is_finished = true;
    scheduler.RemoveFinished([](Sequence&) {});
  }

  LoneSequences sequences_;
};

TEST_F(SchedulerTest, AdmitsInOrderWhileThereAreBlocksAndPlaces) {
  Scheduler scheduler({.max_running = 2}, 8);
  for (const char* id : {"a", "b", "c"}) Enqueue(scheduler, Request(id, 2));
  EXPECT_THAT(Admit(scheduler), ElementsAre("a", "b"));
  EXPECT_TRUE(scheduler.has_waiting());
  Scheduler small({.max_running = 3}, 5);
  for (const char* id : {"a", "b", "c"}) Enqueue(small, Request(id, 2));
  EXPECT_THAT(Admit(small), ElementsAre("a", "b"));
}

TEST_F(SchedulerTest, NoRequestOvertakesOneThatDoesNotFitYet) {
  Scheduler scheduler({.max_running = 3}, 5);
  Enqueue(scheduler, Request("a", 3));
  Enqueue(scheduler, Request("b", 3));
  Enqueue(scheduler, Request("c", 1));
  EXPECT_THAT(Admit(scheduler), ElementsAre("a"));
}

TEST_F(SchedulerTest, WithoutBlocksTheYoungestIsPreemptedAndComesBack) {
  Scheduler scheduler({.max_running = 2, .enable_prefix_cache = false}, 4);
  Enqueue(scheduler, Request("a", 2));
  Enqueue(scheduler, Request("b", 2));
  ASSERT_THAT(Admit(scheduler), ElementsAre("a", "b"));
  Decode(*scheduler.running()[0], 1);
  scheduler.ReserveRoots(At(2));
  ASSERT_THAT(scheduler.running(), SizeIs(1));
  EXPECT_EQ(scheduler.running()[0]->request().request_id, "a");
  EXPECT_EQ(scheduler.num_preempted(), 1);
  scheduler.running()[0]->is_finished = true;
  scheduler.RemoveFinished([](Sequence&) {});
  EXPECT_THAT(Admit(scheduler), ElementsAre("b"));
  EXPECT_EQ(scheduler.num_preempted(), 0);
}

TEST_F(SchedulerTest, APreemptedSampleKeepsTheRowsWhoseLogProbabilitiesItHas) {
  Scheduler scheduler({.max_running = 2}, 6);
  GenerationRequest reported = Request("b", 4);
  reported.output.num_prompt_logprobs = 1;
  Enqueue(scheduler, Request("a", 2));
  Enqueue(scheduler, reported);
  ASSERT_THAT(Admit(scheduler), ElementsAre("a", "b"));
  Sequence& sequence = *scheduler.running()[1];
  EXPECT_EQ(sequence.num_computed, 0);
  sequence.num_computed = 3 * kBlockTokens;
  sequence.prompt_logprobs.resize(3 * kBlockTokens - 1);
  scheduler.CacheAndTrim(sequence);
  Decode(*scheduler.running()[0], 1);
  scheduler.ReserveRoots(At(2));
  ASSERT_EQ(scheduler.num_preempted(), 1);
  scheduler.running()[0]->is_finished = true;
  scheduler.RemoveFinished([](Sequence&) {});
  ASSERT_THAT(Admit(scheduler), ElementsAre("b"));
  EXPECT_EQ(scheduler.running()[0]->num_computed, 2 * kBlockTokens);
}

TEST_F(SchedulerTest, ALowPriorityIsPreemptedBeforeAYoungSample) {
  Scheduler scheduler({.max_running = 2, .enable_prefix_cache = false}, 4);
  Enqueue(scheduler, Request("low", 2, -5));
  ASSERT_THAT(Admit(scheduler), ElementsAre("low"));
  Enqueue(scheduler, Request("high", 2, 5));
  ASSERT_THAT(Admit(scheduler), ElementsAre("high"));
  Decode(*scheduler.running()[1], 1);
  scheduler.ReserveRoots(At(2));
  ASSERT_THAT(scheduler.running(), SizeIs(1));
  EXPECT_EQ(scheduler.running()[0]->request().request_id, "high");
}

TEST_F(SchedulerTest, AFloodOfHighPriorityTakesNoBlocksFromAnotherTenant) {
  Scheduler scheduler({.max_running = 4, .enable_prefix_cache = false}, 8);
  GenerationRequest quiet = Request("q", 2, -100);
  quiet.tenant = "quiet";
  Enqueue(scheduler, std::move(quiet));
  for (const char* id : {"a", "b", "c"}) {
    GenerationRequest flood = Request(id, 2, 100);
    flood.tenant = "flood";
    Enqueue(scheduler, std::move(flood));
  }
  ASSERT_EQ(Admit(scheduler).size(), 4);
  for (const auto& sequence : scheduler.running()) Decode(*sequence, 1);
  scheduler.ReserveRoots(At(2));
  EXPECT_GT(scheduler.num_preempted(), 0);
  const auto is_quiet = [](const auto& sequence) { return sequence->request().tenant == "quiet"; };
  EXPECT_EQ(std::ranges::count_if(scheduler.running(), is_quiet), 1);
}

// Two tenants: a's sample has the most blocks, and b's samples come one after another.
TEST_F(SchedulerTest, ASampleThatComesBackAsTheOldestKeepsItsBlocks) {
  Scheduler scheduler({.max_running = 4, .enable_prefix_cache = false}, 5);
  const auto of_b = [](const char* id) {
    GenerationRequest request = Request(id, 1);
    request.tenant = "b";
    return request;
  };
  Enqueue(scheduler, Request("a", 3));
  Enqueue(scheduler, of_b("b"));
  Enqueue(scheduler, of_b("c"));
  ASSERT_EQ(Admit(scheduler).size(), 3);
  const auto grow = [&](const char* id) {
    for (const auto& sequence : scheduler.running()) {
      if (sequence->request().request_id == id) Decode(*sequence, 1);
    }
    scheduler.ReserveRoots(At(2));
  };
  const auto ids = [&] {
    std::vector<std::string> ids;
    for (const auto& sequence : scheduler.running()) ids.push_back(sequence->request().request_id);
    return ids;
  };
  grow("b");
  ASSERT_THAT(ids(), ElementsAre("b", "c")) << "a has the most blocks";
  for (const auto& sequence : scheduler.running()) sequence->is_finished |= sequence->request().request_id == "b";
  scheduler.RemoveFinished([](Sequence&) {});
  Enqueue(scheduler, of_b("d"));
  ASSERT_EQ(Admit(scheduler).size(), 2);
  ASSERT_THAT(ids(), ElementsAre("a", "c", "d"));
  grow("c");
  EXPECT_THAT(ids(), ElementsAre("a", "c"));
  grow("a");
  EXPECT_THAT(ids(), ElementsAre("a"));
}

TEST_F(SchedulerTest, APrefixThatSamplesShareCountsOnce) {
  Scheduler scheduler({.max_running = 8}, 15);
  const auto of = [](const char* tenant, int32_t num_blocks) {
    GenerationRequest request = Request("x", num_blocks);
    request.tenant = tenant;
    return request;
  };
  Enqueue(scheduler, of("sharing", 3));
  ASSERT_EQ(Admit(scheduler).size(), 1);
  Decode(*scheduler.running()[0], 1);
  scheduler.ReserveRoots(At(2));
  scheduler.CacheAndTrim(*scheduler.running()[0]);
  for (int i = 0; i < 3; ++i) {  // with the three blocks of the first, and one of its own
    GenerationRequest next = of("sharing", 3);
    next.prompt.push_back(7);
    Enqueue(scheduler, std::move(next));
  }
  Enqueue(scheduler, of("single", 8));
  ASSERT_EQ(Admit(scheduler).size(), 4);
  ASSERT_EQ(scheduler.pool().num_free(), 0);
  const auto is_single = [](const auto& sequence) { return sequence->request().tenant == "single"; };
  const auto single = std::ranges::find_if(scheduler.running(), is_single);
  Decode(**single, 1);  // needs a block, and its tenant has 8 blocks as against 7
  scheduler.ReserveRoots(At(2));
  EXPECT_EQ(scheduler.num_preempted(), 1);
  EXPECT_EQ(std::ranges::count_if(scheduler.running(), is_single), 0);
}

TEST_F(SchedulerTest, ATenantRunsNoMoreSamplesThanItMay) {
  Scheduler scheduler({.max_running = 8, .tenants = {.max_running_samples = 2}}, 64);
  for (const char* id : {"a", "b", "c"}) Enqueue(scheduler, Request(id, 1));
  EXPECT_THAT(Admit(scheduler), ElementsAre("a", "b"));
  scheduler.running()[0]->is_finished = true;
  scheduler.RemoveFinished([](Sequence&) {});
  EXPECT_THAT(Admit(scheduler), ElementsAre("c"));
}

TEST_F(SchedulerTest, TreesTakeFreeBlocksOnlyAndGiveThemBack) {
  Scheduler scheduler({.max_running = 2}, 6);
  Enqueue(scheduler, Request("a", 2));
  ASSERT_THAT(Admit(scheduler), ElementsAre("a"));
  Sequence& sequence = *scheduler.running()[0];
  Decode(sequence, 1);
  scheduler.ReserveRoots(At(2));
  const int32_t num_free = scheduler.pool().num_free();
  Scheduler::TreeSlots slots = scheduler.ReserveTree(sequence, 64 * kBlockTokens, 1);
  EXPECT_THAT(slots.slots, SizeIs(num_free * kBlockTokens));
  EXPECT_EQ(scheduler.pool().num_free(), 0);
  EXPECT_EQ(scheduler.num_preemptions(), 0);
  scheduler.GiveBack(slots);
  EXPECT_EQ(scheduler.pool().num_free(), num_free);
  EXPECT_THAT(slots.slots, IsEmpty());
}

// The path's blocks and the nodes' blocks come from the same few that are free.
TEST_F(SchedulerTest, AChainIsCutToTheBlocksThatAreFree) {
  for (const auto& [num_blocks, num_slots] :
       {std::pair(3, 0), {4, 0}, {5, kBlockTokens}, {6, kBlockTokens}, {7, 2 * kBlockTokens}}) {
    Scheduler scheduler({.max_running = 1}, num_blocks);
    Enqueue(scheduler, Request("a", 3));
    ASSERT_THAT(Admit(scheduler), ElementsAre("a"));
    Sequence& sequence = *scheduler.running()[0];
    const Scheduler::TreeSlots slots = scheduler.ReserveTree(sequence, 2 * kBlockTokens, 2 * kBlockTokens);
    EXPECT_THAT(slots.slots, SizeIs(num_slots)) << num_blocks;
    EXPECT_GE(sequence.blocks.size() * kBlockTokens, sequence.size() + slots.slots.size());
  }
}

TEST_F(SchedulerTest, ATreeEvictsNoCachedBlock) {
  Scheduler scheduler({.max_running = 1}, 4);
  LeaveThreeCachedBlocks(scheduler);
  ASSERT_EQ(scheduler.pool().num_cached(), 3);
  GenerationRequest request = Request("b", 1);
  request.prompt.resize(2);  // so that its block has room for a path, and only the tree's nodes need a block
  Enqueue(scheduler, std::move(request));
  ASSERT_THAT(Admit(scheduler), ElementsAre("b"));
  Decode(*scheduler.running()[0], 0);
  const Scheduler::TreeSlots slots = scheduler.ReserveTree(*scheduler.running()[0], 8, 1);
  EXPECT_THAT(slots.slots, IsEmpty());
  EXPECT_EQ(scheduler.pool().num_cached(), 3);
}

TEST_F(SchedulerTest, CachedBlocksAreEvictedForTheTreesThatRequestsMayHave) {
  for (const int32_t max_tree_nodes : {0, 4}) {
    Scheduler scheduler({.max_running = 1}, 4);
    LeaveThreeCachedBlocks(scheduler);
    Enqueue(scheduler, Request("b", 1));
    ASSERT_THAT(Admit(scheduler), ElementsAre("b"));
    ASSERT_EQ(scheduler.pool().num_free(), 0);
    scheduler.running()[0]->active->max_tree_nodes = max_tree_nodes;
    scheduler.KeepFree();
    EXPECT_EQ(scheduler.pool().num_free(), max_tree_nodes > 0 ? 1 : 0);  // at most a quarter of the blocks
  }
}

// A chain of nodes needs the most, wherever in its block the sequence ends.
TEST_F(SchedulerTest, EnoughCachedBlocksAreEvictedForTheLargestTree) {
  constexpr int32_t kNumNodes = 2 * kBlockTokens;
  for (int32_t num_tokens = 1; num_tokens <= kBlockTokens; ++num_tokens) {
    Scheduler scheduler({.max_running = 1}, 40);
    for (int i = 0; i < 12; ++i) {
      Enqueue(scheduler, Request(std::string(1, static_cast<char>('a' + i)), 3));
      ASSERT_EQ(Admit(scheduler).size(), 1);
      Decode(*scheduler.running()[0], 1);
      scheduler.CacheAndTrim(*scheduler.running()[0]);
      scheduler.running()[0]->is_finished = true;
      scheduler.RemoveFinished([](Sequence&) {});
    }
    GenerationRequest request = Request("z", 1);
    request.prompt.resize(num_tokens);
    Enqueue(scheduler, std::move(request));
    ASSERT_EQ(Admit(scheduler).size(), 1);
    Sequence& sequence = *scheduler.running()[0];
    sequence.active->max_tree_nodes = kNumNodes;
    scheduler.KeepFree();
    ASSERT_GT(scheduler.pool().num_cached(), 0);
    Decode(sequence, 1);
    scheduler.ReserveRoots(At(2));
    EXPECT_THAT(scheduler.ReserveTree(sequence, kNumNodes, kNumNodes).slots, SizeIs(kNumNodes)) << num_tokens;
  }
}

TEST_F(SchedulerTest, AKnownPromptBeginsWithItsCachedBlocks) {
  Scheduler scheduler({.max_running = 1}, 8);
  LeaveThreeCachedBlocks(scheduler);
  Enqueue(scheduler, Request("a", 3));
  ASSERT_THAT(Admit(scheduler), ElementsAre("a"));
  // The last token's row is always computed, so its block is not shared.
  EXPECT_EQ(scheduler.running()[0]->num_computed, 2 * kBlockTokens);
}

}  // namespace
}  // namespace foretoken::verifier
