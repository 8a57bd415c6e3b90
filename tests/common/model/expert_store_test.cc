// SPDX-License-Identifier: Apache-2.0
// The memory for experts, with experts whose packing is recorded. If this test fails, a server takes more memory than
// it was allowed, or reads experts again that it should still have.
#include "common/model/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace foretoken::model {
namespace {

using ::testing::ElementsAre;

class SizedWeight final : public kernels::Weight {
 public:
  explicit SizedWeight(size_t num_bytes) : Weight(1, static_cast<int64_t>(num_bytes), num_bytes) {}
};

ExpertMatrices ExpertOf(const ExpertSize& size) {
  return {.gate_up = std::make_unique<SizedWeight>(size.num_bytes - 1), .down = std::make_unique<SizedWeight>(1)};
}

ExpertSize Sized(size_t num_bytes) { return {.num_bytes = num_bytes, .num_weights = static_cast<int64_t>(num_bytes)}; }

// Two layers of three experts with 10 bytes each.
class ExpertStoreTest : public ::testing::Test {
 protected:
  using Place = std::pair<int32_t, int32_t>;  // layer, expert

  std::unique_ptr<ExpertStore> Make(size_t max_bytes, ExpertSizes sizes) {
    return std::make_unique<ExpertStore>(ExpertStore::Bound{
        .max_bytes = max_bytes, .sizes = sizes, .pack = [this, sizes](int32_t layer, int32_t expert) {
          packed_.emplace_back(layer, expert);
          return ExpertOf(sizes[layer][expert]);
        }});
  }
  std::unique_ptr<ExpertStore> Make(size_t max_bytes) {
    return Make(max_bytes, ExpertSizes(2, std::vector<ExpertSize>(3, Sized(10))));
  }

  std::vector<Place> packed_;
};

TEST_F(ExpertStoreTest, PacksAnExpertWhenItIsAskedForAndKeepsIt) {
  const auto store = Make(60);
  EXPECT_EQ(store->use().num_bytes, 0u);
  const kernels::Expert first = store->Get(1, 2);
  EXPECT_EQ(first.gate_up->num_bytes(), 9u);
  EXPECT_EQ(first.down->num_bytes(), 1u);
  EXPECT_EQ(first.gate_up_bias, nullptr);
  store->Get(0, 2);
  EXPECT_EQ(store->Get(1, 2).gate_up, first.gate_up);
  EXPECT_THAT(packed_, ElementsAre(Place(1, 2), Place(0, 2)));
  EXPECT_EQ(store->use().num_loads, 2u);
  EXPECT_EQ(store->use().num_bytes, 20u);
}

TEST_F(ExpertStoreTest, MakesRoomInTheNearestLayerBeforeThatHoldsAny) {
  const auto store = Make(35, ExpertSizes(4, std::vector<ExpertSize>(3, Sized(10))));
  store->Get(0, 0);
  store->Get(2, 0);
  store->Get(3, 0);
  store->Get(3, 1);  // drops 2, 0
  store->Get(1, 0);  // drops 0, 0
  packed_.clear();
  for (const Place& held : {Place(3, 0), Place(3, 1), Place(1, 0)}) store->Get(held.first, held.second);
  EXPECT_THAT(packed_, ElementsAre());
  store->Get(1, 1);  // drops 3, 0: no expert of layer 0 is held, and the pass comes to layer 3 last
  store->Get(3, 1);
  store->Get(1, 0);
  EXPECT_THAT(packed_, ElementsAre(Place(1, 1)));
}

TEST_F(ExpertStoreTest, MakesRoomInItsOwnLayerIfNoOtherHoldsAny) {
  const auto store = Make(20);
  for (const int32_t expert : {0, 1, 0, 2, 0}) store->Get(0, expert);  // 2 takes the room of 1
  EXPECT_THAT(packed_, ElementsAre(Place(0, 0), Place(0, 1), Place(0, 2)));
}

TEST_F(ExpertStoreTest, DropsTheExpertOfALayerWhoseLastUseIsLongestAgo) {
  const auto store = Make(35);
  for (int32_t expert = 0; expert < 3; ++expert) store->Get(0, expert);
  store->Get(0, 0);  // now expert 1 is the oldest
  store->Get(1, 0);
  packed_.clear();
  store->Get(0, 0);
  store->Get(0, 2);
  store->Get(1, 0);
  EXPECT_THAT(packed_, ElementsAre());
}

// A step of many rows uses all experts. Where nearly all of them fit, it reads nearly none.
TEST_F(ExpertStoreTest, LoadsFewExpertsInPassesOverAllIfFewDoNotFit) {
  constexpr int32_t kNumLayers = 6, kNumExperts = 16;
  for (const uint64_t num_missing : {1u, 6u, 48u}) {
    const auto store = Make((kNumLayers * kNumExperts - num_missing) * 10,
                            ExpertSizes(kNumLayers, std::vector<ExpertSize>(kNumExperts, Sized(10))));
    uint64_t num_before = 0;
    for (int pass = 0; pass < 10; ++pass) {
      num_before = store->use().num_loads;
      for (int32_t layer = 0; layer < kNumLayers; ++layer) {
        for (int32_t expert = 0; expert < kNumExperts; ++expert) store->Get(layer, expert);
      }
    }
    // No order of drops loads fewer than are missing.
    EXPECT_LE(store->use().num_loads - num_before, num_missing + num_missing / 3 + 1) << num_missing;
  }
}

TEST_F(ExpertStoreTest, HoldsOneExpertWhereThereIsRoomForOne) {
  const auto store = Make(10);
  for (const int32_t expert : {0, 0, 1, 0}) EXPECT_EQ(store->Get(0, expert).gate_up->num_bytes(), 9u);
  EXPECT_THAT(packed_, ElementsAre(Place(0, 0), Place(0, 1), Place(0, 0)));
}

TEST_F(ExpertStoreTest, NeverHoldsMoreBytesThanItMayAndNeverMoreThanItWasAskedFor) {
  std::minstd_rand random(1);
  ExpertSizes sizes(4);
  size_t all_bytes = 0;
  for (std::vector<ExpertSize>& layer : sizes) {
    for (int i = 0; i < 5; ++i) all_bytes += layer.emplace_back(Sized(2 + random() % 20)).num_bytes;
  }
  for (const size_t max_bytes : {22u, 50u, 100u}) {
    ASSERT_LT(max_bytes, all_bytes);
    // While an expert is packed, the store must already have made room for it.
    ExpertStore* asked = nullptr;
    ExpertStore store({.max_bytes = max_bytes, .sizes = sizes, .pack = [&](int32_t layer, int32_t expert) {
                         EXPECT_LE(asked->use().num_bytes + sizes[layer][expert].num_bytes, max_bytes);
                         return ExpertOf(sizes[layer][expert]);
                       }});
    asked = &store;
    for (int i = 0; i < 1000; ++i) {
      const size_t layer = random() % 4, expert = random() % 5;
      const kernels::Expert got = store.Get(static_cast<int32_t>(layer), static_cast<int32_t>(expert));
      ASSERT_EQ(got.gate_up->num_bytes() + got.down->num_bytes(), sizes[layer][expert].num_bytes);
      ASSERT_LE(store.use().num_bytes, max_bytes);
    }
    EXPECT_LT(store.use().num_loads, 1000u);
    EXPECT_GT(store.use().num_loads, 20u);
    EXPECT_EQ(store.sizes(), sizes);
  }
}

TEST(ExpertStore, WithoutABoundKeepsWhatItIsGiven) {
  ExpertStore store(2);
  for (const size_t num_bytes : {10, 20}) store.Keep(1, ExpertOf(Sized(num_bytes)));
  EXPECT_EQ(store.Get(1, 0).gate_up->num_bytes(), 9u);
  EXPECT_EQ(store.Get(1, 1).gate_up->num_bytes(), 19u);
  EXPECT_EQ(store.use().num_bytes, 30u);
  EXPECT_EQ(store.use().num_loads, 0u);
  EXPECT_EQ(store.sizes(), (ExpertSizes{{}, {Sized(10), Sized(20)}}));
}

TEST(ExpertStoreDeathTest, DiesOfABoundThatDoesNotHoldItsLargestExpert) {
  EXPECT_DEATH(
      ExpertStore(
          {.max_bytes = 9, .sizes = {{Sized(10)}}, .pack = [](int32_t, int32_t) { return ExpertOf(Sized(10)); }}),
      "");
}

}  // namespace
}  // namespace foretoken::model
