// SPDX-License-Identifier: Apache-2.0
// Device memory, and weights on it. If this test fails, a GPU server computes with wrong weights or reads unfinished
// copies.
#include "kernels/cuda/base/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/cuda/base/scratch_memory.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/cuda/matmul/weight.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

class DeviceTest : public OnDevice {
 protected:
  // [N, K]
  std::vector<uint16_t> Download(const CudaWeight& weight) {
    std::vector<uint16_t> elements;
    for (const float value : DownloadWeight(weight)) elements.push_back(Bf16FromFloat(value));
    return elements;
  }
};

// With or without a device here, the facts agree with the result of Open.
TEST(QueryDevice, AgreesWithOpening) {
  const Device::Opened opened = Device::Open();
  EXPECT_EQ(opened.device == nullptr, DeviceRefusal(QueryDevice()).has_value());
  EXPECT_EQ(opened.error, DeviceRefusal(QueryDevice()).value_or(""));
}

// The emulated GPU has it, and so has every build for an H100 or H200. A GPU that does not know is only slow.
TEST_F(DeviceTest, KnowsWhetherGroupsOfWarpsMultiply) {
  const DeviceFacts& facts = device().facts();
  if (facts.name == "emulated GPU") {
    EXPECT_TRUE(facts.has_group_mma);
  } else if (facts.capability.major != 9) {
    EXPECT_FALSE(facts.has_group_mma);
  }
}

TEST_F(DeviceTest, AllocatesZerosAndCopies) {
  for (const size_t num_bytes : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    const Buffer buffer = device().Allocate(num_bytes);
    std::vector<char> bytes(num_bytes, 'y');
    device().Copy(bytes.data(), buffer.get(), num_bytes, CopyKind::kToHost);
    device().Synchronize();
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; }));
    const std::vector<char> from(num_bytes, 'x');
    device().Copy(buffer.get(), from.data(), num_bytes, CopyKind::kToDevice);
    device().Copy(bytes.data(), buffer.get(), num_bytes, CopyKind::kToHost);
    device().Synchronize();
    EXPECT_EQ(bytes, from);
  }
  EXPECT_EQ(device().Allocate(0).get(), nullptr);
}

TEST_F(DeviceTest, CallsBackInOrderWhenSynchronisedAndOnlyThen) {
  const Buffer buffer = device().Allocate(4);
  std::vector<int> called;
  auto* from = static_cast<int32_t*>(device().Pinned(4));
  *from = 17;
  device().Copy(buffer.get(), from, 4, CopyKind::kToDevice);
  const auto* to = static_cast<const int32_t*>(device().Download(buffer.get(), 4));
  device().AtSynchronize([&, to] { called.push_back(*to); });
  device().AtSynchronize([&] { called.push_back(2); });
  EXPECT_TRUE(called.empty());
  device().Synchronize();
  EXPECT_EQ(called, (std::vector<int>{17, 2}));
  device().Synchronize();
  EXPECT_EQ(called.size(), 2);
}

TEST_F(DeviceTest, PinnedMemoryIsApartUntilSynchronisedAndThenUsedAgain) {
  std::set<char*> first;
  for (int round = 0; round < 3; ++round) {
    std::map<char*, size_t> taken;
    for (const size_t num_bytes : {size_t{1}, size_t{1000}, size_t{3} << 20, size_t{256}, size_t{1} << 20}) {
      auto* bytes = static_cast<char*>(device().Pinned(num_bytes));
      std::memset(bytes, 1, num_bytes);
      const auto after = taken.lower_bound(bytes);
      EXPECT_TRUE(after == taken.end() || bytes + num_bytes <= after->first);
      EXPECT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= bytes);
      taken[bytes] = num_bytes;
      if (round == 0) first.insert(bytes);
      EXPECT_TRUE(first.contains(bytes)) << round;
    }
    device().Synchronize();
  }
}

TEST_F(DeviceTest, PinnedMemoryThatGrowsFromStepToStepTakesFewPieces) {
  std::set<void*> pieces;
  for (size_t step = 0; step < 100; ++step) {
    pieces.insert(device().Pinned((size_t{5} << 20) + step * 256));
    device().Synchronize();
  }
  EXPECT_LE(pieces.size(), 2);
}

TEST(ScratchMemory, GivesPiecesThatAreApartUntilNoneIsInUse) {
  constexpr size_t kBytes = 10 * 256;
  const auto memory = std::make_unique<std::byte[]>(kBytes);
  int num_allocated = 0;
  ScratchMemory scratch(kBytes, /*stream=*/nullptr, [&](size_t num_bytes) {
    EXPECT_EQ(num_bytes, kBytes);
    ++num_allocated;
    return Buffer(memory.get(), [](void*) {});
  });
  const auto take = [&](size_t num_bytes) { return scratch.Take(num_bytes, nullptr); };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(take(kBytes + 1), nullptr);
    EXPECT_EQ(num_allocated, round);
    EXPECT_EQ(take(1), memory.get());
    EXPECT_EQ(take(257), memory.get() + 256);
    scratch.Return();  // one piece is still in use, so nothing is free again
    EXPECT_EQ(take(7 * 256 + 1), nullptr);
    EXPECT_EQ(take(7 * 256 - 1), memory.get() + 768);
    EXPECT_EQ(take(1), nullptr);
    scratch.Return();
    scratch.Return();
  }
  EXPECT_EQ(take(kBytes), memory.get());
  EXPECT_EQ(num_allocated, 1);
}

TEST_F(DeviceTest, KeepsScratchMemoryAndTakesMoreWhereItDoesNotSuffice) {
  const auto place_of = [&](size_t num_bytes) { return StreamScratch(num_bytes, device().stream()).data(); };
  constexpr size_t kBytes = 4096;
  device().KeepScratch(kBytes);
  void* const kept = place_of(1);
  EXPECT_EQ(place_of(kBytes), kept);
  const StreamScratch piece(1, device().stream()), more(kBytes, device().stream());
  EXPECT_EQ(piece.data(), kept);
  EXPECT_NE(more.data(), kept);
  std::vector<char> from(kBytes, 'x'), to(kBytes);
  device().Copy(more.data(), from.data(), kBytes, CopyKind::kToDevice);
  device().Copy(to.data(), more.data(), kBytes, CopyKind::kToHost);
  device().Synchronize();
  EXPECT_EQ(to, from);
}

TEST_F(DeviceTest, StacksAWeightsPartsAndRoundsThemToBf16) {
  const std::vector<float> f32 = testing::RandomValues(1).Normals(2 * 3);
  const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x0001}, bf16 = {1, 2, 3, 4, 5, 6};
  const std::vector<ConstTensorView> parts = {{f32.data(), DType::kF32, Shape(2, 3)},
                                              {f16.data(), DType::kF16, Shape(1, 3)},
                                              {bf16.data(), DType::kBF16, Shape(2, 3)}};
  const auto weight = PrepareWeight({.parts = parts, .release = nullptr}, device());
  EXPECT_EQ(weight->out_features(), 5);
  EXPECT_EQ(weight->in_features(), 3);
  std::vector<uint16_t> expected;
  expected.reserve(5 * 3);
  for (const float value : f32) expected.push_back(Bf16FromFloat(value));
  for (const uint16_t value : f16) expected.push_back(Bf16FromFloat(FloatFromF16(value)));
  expected.insert(expected.end(), bf16.begin(), bf16.end());
  EXPECT_EQ(Download(*weight), expected);
}

TEST_F(DeviceTest, ReleasesEveryByteOfAWeightOnceAndInOrder) {
  const std::vector<float> f32(5 << 20, 1.5f);  // more than one piece between two releases
  const std::vector<uint16_t> bf16(1 << 10, 7);
  const std::vector<ConstTensorView> parts = {{f32.data(), DType::kF32, Shape(5 << 10, 1 << 10)},
                                              {bf16.data(), DType::kBF16, Shape(1, 1 << 10)}};
  std::vector<std::pair<const void*, size_t>> released;
  const auto release = [&](const void* begin, size_t num_bytes) { released.emplace_back(begin, num_bytes); };
  const auto weight = PrepareWeight({.parts = parts, .release = release}, device());
  const size_t first_bytes = size_t{16} << 20;
  EXPECT_EQ(released, (std::vector<std::pair<const void*, size_t>>{
                          {f32.data(), first_bytes},
                          {reinterpret_cast<const char*>(f32.data()) + first_bytes, (size_t{20} << 20) - first_bytes},
                          {bf16.data(), 2 << 10}}));
  const std::vector<uint16_t> elements = Download(*weight);
  EXPECT_EQ(std::count(elements.begin(), elements.end(), Bf16FromFloat(1.5f)), 5 << 20);
  EXPECT_EQ(std::count(elements.begin(), elements.end(), 7), 1 << 10);
}

}  // namespace
}  // namespace foretoken::kernels::cuda
