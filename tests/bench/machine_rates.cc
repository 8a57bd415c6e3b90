// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/machine_rates.h"

#include <algorithm>
#include <atomic>

#include "kernels/check.h"
#include "kernels/cpu/matmul/amx_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/machine_rates.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace foretoken::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Four vectors at a time, in one stream and without prefetches. This was the fastest of the variants tried.
uint64_t Sum(const uint64_t* words, size_t count) {
  const hn::ScalableTag<uint64_t> tag;
  const size_t lanes = hn::Lanes(tag);
  auto sum0 = hn::Zero(tag), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(tag, words + i));
    sum1 = hn::Add(sum1, hn::LoadU(tag, words + i + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(tag, words + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::LoadU(tag, words + i + 3 * lanes));
  }
  uint64_t sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < count; ++i) sum += words[i];
  return sum;
}

double MultiplyFloats(int64_t num_rounds) {
  constexpr int kAccumulators = 10;
  const hn::ScalableTag<float> tag;
  hn::Vec<decltype(tag)> acc[kAccumulators];
  for (auto& sum : acc) sum = hn::Zero(tag);
  const auto a = hn::Set(tag, 0.5f);
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kAccumulators; ++j) acc[j] = hn::MulAdd(acc[j], a, a);
  }
  for (int j = 1; j < kAccumulators; ++j) acc[0] = hn::Add(acc[0], acc[j]);
  FT_CHECK(hn::GetLane(acc[0]) >= 0);  // uses the result, so the compiler keeps the work
  return static_cast<double>(num_rounds) * kAccumulators * static_cast<double>(hn::Lanes(tag));
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::bench {
namespace {

HWY_EXPORT(MultiplyFloats);
HWY_EXPORT(Sum);

using kernels::cpu::Isa;
using kernels::cpu::ThreadPool;

#if defined(__x86_64__)

double MultiplyBf16Vectors(int64_t num_rounds) {
  for (int64_t i = 0; i < num_rounds; ++i) {
    asm volatile(
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm0\n vdpbf16ps %%zmm30, %%zmm31, %%zmm1\n"
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm2\n vdpbf16ps %%zmm30, %%zmm31, %%zmm3\n"
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm4\n vdpbf16ps %%zmm30, %%zmm31, %%zmm5\n"
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm6\n vdpbf16ps %%zmm30, %%zmm31, %%zmm7\n"
        "vdpbf16ps %%zmm30, %%zmm31, %%zmm8\n vdpbf16ps %%zmm30, %%zmm31, %%zmm9\n"
        :
        :
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9");
  }
  return static_cast<double>(num_rounds) * 10 * 32;
}

double MultiplyTiles(int64_t num_rounds) {
  using kernels::cpu::TileRegisters;
  kernels::cpu::TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.Set(tile, kernels::cpu::kTileRows);
  TileRegisters::Configure(config);
  for (int64_t i = 0; i < num_rounds; ++i) {
    TileRegisters::MultiplyAddBf16<0, 4, 5>();
    TileRegisters::MultiplyAddBf16<1, 4, 6>();
    TileRegisters::MultiplyAddBf16<2, 7, 5>();
    TileRegisters::MultiplyAddBf16<3, 7, 6>();
  }
  TileRegisters::Release();
  return static_cast<double>(num_rounds) * 4 * 16 * 16 * 32;
}

#else

double MultiplyBf16Vectors(int64_t) { FT_CHECK(false); }
double MultiplyTiles(int64_t) { FT_CHECK(false); }

#endif

double MultiplyOnThisThread(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return MultiplyTiles(4000);
    case Isa::kAvx512Bf16:
      return MultiplyBf16Vectors(100000);
    case Isa::kAvx512Vnni:
    case Isa::kAvx512:
    case Isa::kAvxVnni:
    case Isa::kAvx2:
    case Isa::kBaseline:
      break;
  }
  return HWY_DYNAMIC_DISPATCH(MultiplyFloats)(100000);
}

}  // namespace

uint64_t ReadAll(std::span<const uint64_t> words, ThreadPool& pool) {
  constexpr size_t kChunk = size_t{256 << 10} / sizeof(uint64_t);
  std::atomic<uint64_t> total{0};
  const auto num_chunks = static_cast<int64_t>((words.size() + kChunk - 1) / kChunk);
  pool.ParallelFor(num_chunks, [&](int64_t chunk, int) {
    const auto part = words.subspan(chunk * kChunk, std::min(kChunk, words.size() - chunk * kChunk));
    total.fetch_add(HWY_DYNAMIC_DISPATCH(Sum)(part.data(), part.size()), std::memory_order_relaxed);
  });
  return total.load();
}

double MultiplyInRegisters(Isa isa, ThreadPool& pool) {
  constexpr int64_t kTasksPerThread = 8;
  std::atomic<double> total{0};
  pool.ParallelFor(kTasksPerThread * pool.num_threads(), [&](int64_t, int) { total += MultiplyOnThisThread(isa); });
  return total.load();
}

}  // namespace foretoken::bench
#endif
