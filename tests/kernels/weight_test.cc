// SPDX-License-Identifier: Apache-2.0
// The layout of weights on the CPU. If this test fails, a CPU server computes with wrong weights, or loading takes too
// much memory.
#include "kernels/cpu/matmul/weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/embed.h"

namespace foretoken::kernels::cpu {
namespace {

uint16_t At(const CpuWeight& weight, int64_t output, int64_t input) {
  return weight.bf16_panel(output / 16)[(input / 2 * 16 + output % 16) * 2 + input % 2];
}

TEST(PrepareWeight, StacksPartsOfEveryDTypeAndPadsWithZeros) {
  constexpr int64_t kInputs = 35;
  std::vector<float> f32(3 * kInputs);
  std::vector<uint16_t> f16(20 * kInputs), bf16(2 * kInputs);
  for (size_t i = 0; i < f32.size(); ++i) f32[i] = 1.0f + static_cast<float>(i) / 512;  // between two bf16, ties too
  for (size_t i = 0; i < f16.size(); ++i) f16[i] = static_cast<uint16_t>(0x3c00 + i);
  for (size_t i = 0; i < bf16.size(); ++i) bf16[i] = static_cast<uint16_t>(0x3f80 + i);
  const std::vector<ConstTensorView> parts = {{f32.data(), DType::kF32, Shape(3, kInputs)},
                                              {f16.data(), DType::kF16, Shape(20, kInputs)},
                                              {bf16.data(), DType::kBF16, Shape(2, kInputs)}};
  ThreadPool pool(2);
  const auto weight = PrepareWeight({.parts = parts, .release = nullptr}, pool);
  EXPECT_EQ(weight->out_features(), 25);
  EXPECT_EQ(weight->in_features(), kInputs);
  EXPECT_EQ(weight->num_bytes(), 32u * 64 * 2);
  for (int64_t output = 0; output < 32; ++output) {
    for (int64_t input = 0; input < 64; ++input) {
      uint16_t expected = 0;
      if (input < kInputs && output < 25) {
        expected = output < 3    ? Bf16FromFloat(f32[output * kInputs + input])
                   : output < 23 ? Bf16FromFloat(FloatFromF16(f16[(output - 3) * kInputs + input]))
                                 : bf16[(output - 23) * kInputs + input];
      }
      ASSERT_EQ(At(*weight, output, input), expected) << output << ", " << input;
    }
  }
}

using Ranges = std::vector<std::pair<const char*, size_t>>;

// Expects that the ranges, in any order, cover the parts' bytes, each byte once.
void ExpectCovered(Ranges ranges, std::vector<std::vector<float>*> parts) {
  std::ranges::sort(ranges);
  std::ranges::sort(parts, {}, [](const std::vector<float>* part) { return part->data(); });
  size_t next_range = 0;
  for (const std::vector<float>* part : parts) {
    const char* next = reinterpret_cast<const char*>(part->data());
    const char* end = next + part->size() * sizeof(float);
    for (; next < end; ++next_range) {
      ASSERT_LT(next_range, ranges.size());
      ASSERT_EQ(ranges[next_range].first, next);
      next += ranges[next_range].second;
    }
    ASSERT_EQ(next, end);
  }
  EXPECT_EQ(next_range, ranges.size());
}

TEST(PrepareWeight, FetchesAndReleasesEveryRowOnceOnTheWayOnItsThread) {
  constexpr int64_t kInputs = 4096;  // 3000 rows of F32 are 48 MB
  std::vector<float> first(1000 * kInputs, 1.0f), second(2000 * kInputs, 2.0f);
  const std::vector<ConstTensorView> parts = {{first.data(), DType::kF32, Shape(1000, kInputs)},
                                              {second.data(), DType::kF32, Shape(2000, kInputs)}};
  std::mutex mutex;
  Ranges released;
  std::map<std::pair<const char*, size_t>, std::thread::id> open;  // fetched and not yet released
  size_t open_bytes = 0, most_open_bytes = 0;
  ThreadPool pool(3);
  PrepareWeight({.parts = parts,
                 .fetch =
                     [&](const void* begin, size_t num_bytes) {
                       const std::lock_guard lock(mutex);
                       EXPECT_EQ(num_bytes % (kInputs * sizeof(float)), 0u);
                       open[{static_cast<const char*>(begin), num_bytes}] = std::this_thread::get_id();
                       open_bytes += num_bytes;
                       most_open_bytes = std::max(most_open_bytes, open_bytes);
                     },
                 .release =
                     [&](const void* begin, size_t num_bytes) {
                       const std::lock_guard lock(mutex);
                       const auto fetched = open.find({static_cast<const char*>(begin), num_bytes});
                       ASSERT_NE(fetched, open.end());
                       EXPECT_EQ(fetched->second, std::this_thread::get_id());
                       open.erase(fetched);
                       open_bytes -= num_bytes;
                       released.emplace_back(static_cast<const char*>(begin), num_bytes);
                     }},
                pool);
  EXPECT_TRUE(open.empty());
  EXPECT_LE(most_open_bytes, size_t{3} << 20);
  ExpectCovered(released, {&first, &second});
}

TEST(PrepareWeight, KeepsInfinitiesAndNaNs) {
  std::vector<float> values = {INFINITY, -INFINITY, NAN, -0.0f};
  const ConstTensorView part = {values.data(), DType::kF32, Shape(1, 4)};
  ThreadPool pool(1);
  const auto weight = PrepareWeight({.parts = {&part, 1}, .release = nullptr}, pool);
  EXPECT_EQ(At(*weight, 0, 0), 0x7f80);
  EXPECT_EQ(At(*weight, 0, 1), 0xff80);
  EXPECT_TRUE(std::isnan(FloatFromBf16(At(*weight, 0, 2))));
  EXPECT_EQ(At(*weight, 0, 3), 0x8000);
}

TEST(Embed, ReadsRowsOutOfThePanelsExactly) {
  constexpr int64_t kTokens = 37, kInputs = 45;
  std::vector<uint16_t> table(kTokens * kInputs);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint16_t>(0x3f80 + i);
  const ConstTensorView part = {table.data(), DType::kBF16, Shape(kTokens, kInputs)};
  ThreadPool pool(2);
  const auto weight = PrepareWeight({.parts = {&part, 1}, .release = nullptr}, pool);
  const std::vector<int32_t> token_ids = {36, 0, 15, 16, 16, 7};
  std::vector<float> out(token_ids.size() * kInputs, -1);
  Embed({.weight = weight.get(),
         .token_ids = token_ids.data(),
         .out = {out.data(), DType::kF32, Shape(std::ssize(token_ids), kInputs)}},
        pool);
  for (size_t row = 0; row < token_ids.size(); ++row) {
    for (int64_t i = 0; i < kInputs; ++i) {
      ASSERT_EQ(out[row * kInputs + i], FloatFromBf16(table[token_ids[row] * kInputs + i]));
    }
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu
