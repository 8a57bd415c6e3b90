// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/matmul_variants.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/matmul/weight.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace foretoken::bench {
namespace {

using kernels::MatMulArgs;
using kernels::cpu::AsCpuWeight;
using kernels::cpu::CpuWeight;
using kernels::cpu::kPanelWidth;
using kernels::cpu::ThreadPool;

constexpr int kLineBytes = 64;             // a pair of inputs for all outputs of a panel
constexpr int64_t kTaskBytes = 256 << 10;  // as in the serving kernel
constexpr int64_t kAheadBytes = 40 * kLineBytes;

// The parts of a sum over K. `kStreams` equal ranges of K are read side by side. In each range, `kChains` sums take
// turns over the pairs of inputs.
template <int kStreams, int kChains, bool kPrefetches>
__m512 SumPanel(const char* lines, const uint32_t* x, int64_t num_pairs) {
  const int64_t stream_pairs = num_pairs / kStreams;
  __m512 acc[kStreams][kChains];
#pragma GCC unroll 32
  for (int i = 0; i < kStreams * kChains; ++i) acc[i / kChains][i % kChains] = _mm512_setzero_ps();
  for (int64_t pair = 0; pair < stream_pairs; pair += kChains) {
#pragma GCC unroll 32
    for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 32
      for (int c = 0; c < kChains; ++c) {
        const int64_t at = s * stream_pairs + pair + c;
        if constexpr (kPrefetches) _mm_prefetch(lines + at * kLineBytes + kAheadBytes, _MM_HINT_T0);
        const __m512bh weights = (__m512bh)_mm512_load_si512(lines + at * kLineBytes);
        acc[s][c] = _mm512_dpbf16_ps(acc[s][c], weights, (__m512bh)_mm512_set1_epi32(static_cast<int>(x[at])));
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 1; i < kStreams * kChains; ++i) acc[0][0] = _mm512_add_ps(acc[0][0], acc[i / kChains][i % kChains]);
  return acc[0][0];
}

int64_t TaskPanels(const CpuWeight& weight, const ThreadPool& pool) {
  const int64_t panel_bytes = weight.panel_elements() * static_cast<int64_t>(sizeof(uint16_t));
  const int64_t fair = std::max<int64_t>(1, weight.num_panels() / (4 * pool.num_threads()));
  return std::clamp<int64_t>(kTaskBytes / panel_bytes, 1, fair);
}

void StorePanel(const MatMulArgs& args, int64_t panel, __m512 sums) {
  const int64_t first = panel * kPanelWidth, count = std::min<int64_t>(kPanelWidth, args.out.shape[1] - first);
  _mm512_mask_storeu_ps(args.out.as<float>() + first, static_cast<__mmask16>((1u << count) - 1), sums);
}

// Keeps E1: one chain per sum as in the serving kernel, but several panels at a time.
template <int kPanels>
void MultiplyPanelsInOrder(const MatMulArgs& args, const CpuWeight& weight, int64_t first_panel) {
  const int64_t panel_bytes = weight.panel_elements() * static_cast<int64_t>(sizeof(uint16_t));
  const char* lines = reinterpret_cast<const char*>(weight.panel(first_panel));
  __m512 acc[kPanels];
#pragma GCC unroll 32
  for (int p = 0; p < kPanels; ++p) acc[p] = _mm512_setzero_ps();
  for (int64_t pair = 0; pair < weight.padded_in_features() / 2; ++pair) {
    const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(args.x.as<uint32_t>()[pair]));
#pragma GCC unroll 32
    for (int p = 0; p < kPanels; ++p) {
      const __m512bh weights = (__m512bh)_mm512_load_si512(lines + p * panel_bytes + pair * kLineBytes);
      acc[p] = _mm512_dpbf16_ps(acc[p], weights, x);
    }
  }
#pragma GCC unroll 32
  for (int p = 0; p < kPanels; ++p) StorePanel(args, first_panel + p, acc[p]);
}

template <int kPanels>
void RunInOrder(const MatMulArgs& args, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  FT_CHECK(weight.num_panels() % kPanels == 0);
  const int64_t num_groups = weight.num_panels() / kPanels;
  const int64_t task_groups = std::max<int64_t>(1, TaskPanels(weight, pool) / kPanels);
  pool.ParallelFor((num_groups + task_groups - 1) / task_groups, [&](int64_t task, int) {
    for (int64_t group = task * task_groups; group < std::min((task + 1) * task_groups, num_groups); ++group) {
      MultiplyPanelsInOrder<kPanels>(args, weight, group * kPanels);
    }
  });
}

template <int kStreams, int kChains, bool kPrefetches>
void Run(const MatMulArgs& args, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  const int64_t num_panels = weight.num_panels(), task_panels = TaskPanels(weight, pool);
  pool.ParallelFor((num_panels + task_panels - 1) / task_panels, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * task_panels, num_panels);
    for (int64_t panel = task * task_panels; panel < end; ++panel) {
      StorePanel(args, panel,
                 SumPanel<kStreams, kChains, kPrefetches>(reinterpret_cast<const char*>(weight.panel(panel)),
                                                          args.x.as<uint32_t>(), weight.padded_in_features() / 2));
    }
  });
}

// Cuts K into one range per thread. A task sums one range of its panels, and a second loop adds the ranges.
void RunSplitOverThreads(const MatMulArgs& args, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  const int64_t num_panels = weight.num_panels(), num_pairs = weight.padded_in_features() / 2;
  int64_t num_parts = std::max(2, pool.num_threads());
  while (num_pairs % (4 * num_parts) != 0) --num_parts;
  const int64_t task_panels = TaskPanels(weight, pool) * num_parts, part_pairs = num_pairs / num_parts;
  const int64_t num_groups = (num_panels + task_panels - 1) / task_panels;
  static std::vector<float>& sums = *new std::vector<float>;  // [num_parts, num_panels * kPanelWidth]
  if (sums.size() < num_parts * num_panels * kPanelWidth) sums.resize(num_parts * num_panels * kPanelWidth);
  pool.ParallelFor(num_groups * num_parts, [&](int64_t task, int) {
    const int64_t part = task % num_parts, first = task / num_parts * task_panels;
    for (int64_t panel = first; panel < std::min(first + task_panels, num_panels); ++panel) {
      const char* lines = reinterpret_cast<const char*>(weight.panel(panel)) + part * part_pairs * kLineBytes;
      const __m512 sum = SumPanel<1, 4, false>(lines, args.x.as<uint32_t>() + part * part_pairs, part_pairs);
      _mm512_storeu_ps(sums.data() + (part * num_panels + panel) * kPanelWidth, sum);
    }
  });
  pool.ParallelFor(num_groups, [&](int64_t group, int) {
    for (int64_t panel = group * task_panels; panel < std::min((group + 1) * task_panels, num_panels); ++panel) {
      __m512 sum = _mm512_setzero_ps();
      for (int64_t part = 0; part < num_parts; ++part) {
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(sums.data() + (part * num_panels + panel) * kPanelWidth));
      }
      StorePanel(args, panel, sum);
    }
  });
}

}  // namespace

std::span<const MatMulVariant> MatMulVariants() {
  static const std::vector<MatMulVariant>& all =
      *new std::vector<MatMulVariant>{{.name = "2 chains per sum", .run = Run<1, 2, false>},
                                      {.name = "4 chains per sum", .run = Run<1, 4, false>},
                                      {.name = "8 chains per sum", .run = Run<1, 8, false>},
                                      {.name = "4 chains, prefetching", .run = Run<1, 4, true>},
                                      {.name = "halves of K side by side", .run = Run<2, 4, false>},
                                      {.name = "K split over the threads", .run = RunSplitOverThreads},
                                      {.name = "4 panels at once (keeps E1)", .keeps_e1 = true, .run = RunInOrder<4>}};
  const std::vector<kernels::cpu::Isa>& isas = kernels::cpu::SupportedIsas();
  if (std::ranges::find(isas, kernels::cpu::Isa::kAvx512Bf16) == isas.end()) return {};
  return all;
}

}  // namespace foretoken::bench

HWY_POP_ATTRIBUTES

#else

namespace foretoken::bench {

std::span<const MatMulVariant> MatMulVariants() { return {}; }

}  // namespace foretoken::bench

#endif
