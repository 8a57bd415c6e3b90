// SPDX-License-Identifier: Apache-2.0
// Measures attention in the shape of a 1B-parameter model: 32 heads, 8 kv heads, D 64, 16 layers. Prints GMAC/s.
#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/quantize.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr int32_t kHeads = 32, kKvHeads = 8, kHeadDim = 64, kLayers = 16;

constexpr KvCacheDtype kDtypes[] = {KvCacheDtype::kBf16, KvCacheDtype::kInt8, KvCacheDtype::kFp8};

// Fills a head of K or V of a token.
void StoreHead(const KvCacheView& kv, int32_t layer, int32_t part, int32_t slot, int32_t head,
               std::minstd_rand& engine) {
  float values[kHeadDim];
  for (float& value : values) value = static_cast<float>(engine()) * 0x1p-31f - 0.5f;
  uint8_t* elements = kv.elements(layer, part, slot, head);
  if (kv.has_scales()) {
    *kv.scale(layer, part, slot, head) = QuantizeKv(kv.dtype, values, kHeadDim, elements);
  } else {
    for (int32_t d = 0; d < kHeadDim; ++d) reinterpret_cast<uint16_t*>(elements)[d] = Bf16FromFloat(values[d]);
  }
}

// One sequence in all layers: `num_rows` rows after `context` tokens, as a chain or as a tree of branches four nodes
// deep.
void BM_Attention(benchmark::State& state) {
  const auto num_rows = static_cast<int32_t>(state.range(0)), context = static_cast<int32_t>(state.range(1));
  const bool is_tree = state.range(2) != 0;
  const int32_t num_blocks = (context + num_rows) / kKvBlockSize + 1;
  KvCacheView kv{.num_layers = kLayers,
                 .num_blocks = num_blocks,
                 .num_kv_heads = kKvHeads,
                 .head_dim = kHeadDim,
                 .dtype = kDtypes[state.range(4)]};
  const Pages cache(kv.num_bytes());  // huge pages, as in the backend
  kv.data = cache.data();
  std::minstd_rand engine(2);
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    for (int32_t i = 0; i < 2 * num_blocks * kKvBlockSize * kKvHeads; ++i) {
      StoreHead(kv, layer, i % 2, i / 2 / kKvHeads, i / 2 % kKvHeads, engine);
    }
  }
  std::vector<int32_t> positions, chain_lens, ancestor_begins = {0}, ancestor_slots, blocks(num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  double num_keys = 0;
  for (int32_t row = 0; row < num_rows; ++row) {
    const int32_t depth = is_tree ? row % 4 : row;
    for (int32_t i = 0; is_tree && i <= depth; ++i) ancestor_slots.push_back(context + row - depth + i);
    ancestor_begins.push_back(static_cast<int32_t>(ancestor_slots.size()));
    positions.push_back(context + depth);
    chain_lens.push_back(is_tree ? context : context + row + 1);
    num_keys += positions.back() + 1;
  }
  const std::vector<int32_t> segment_begins = {0, num_rows}, table_begins = {0, num_blocks};
  const std::vector<float> q = testing::RandomValues(1).Normals(num_rows * kHeads * kHeadDim);
  std::vector<uint16_t> out(q.size());
  AttentionArgs args{.q = {q.data(), DType::kF32, Shape(num_rows, kHeads * kHeadDim)},
                     .batch = {.num_rows = num_rows,
                               .num_segments = 1,
                               .positions = positions.data(),
                               .chain_lens = chain_lens.data(),
                               .ancestor_begins = ancestor_begins.data(),
                               .ancestor_slots = ancestor_slots.data(),
                               .segment_begins = segment_begins.data(),
                               .block_table_begins = table_begins.data(),
                               .block_tables = blocks.data()},
                     .kv = kv,
                     .layer = 0,
                     .window = std::nullopt,
                     .scale = 0.125f,
                     .out = {out.data(), DType::kBF16, Shape(num_rows, kHeads * kHeadDim)}};
  ThreadPool pool(static_cast<int>(state.range(3)));
  for (auto _ : state) {
    for (args.layer = 0; args.layer < kLayers; ++args.layer) Attention(args, pool);
  }
  state.counters["GMAC/s"] = benchmark::Counter(num_keys * 2 * kHeads * kHeadDim * kLayers * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Attention)
    ->ArgNames({"rows", "context", "tree", "threads", "dtype"})  // of kDtypes
    ->ArgsProduct({{1}, {1024, 8192}, {0}, {1, 2}, {0, 1, 2}})
    ->ArgsProduct({{32}, {1024}, {0, 1}, {1, 2}, {0, 1, 2}})
    ->ArgsProduct({{512}, {0, 4096}, {0}, {1, 2}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace foretoken::kernels::cpu

BENCHMARK_MAIN();
