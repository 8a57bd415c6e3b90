// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/base/workspace.h"
#include "kernels/cpu/matmul/matmul_amx.h"
#include "kernels/cpu/matmul/matmul_avx512_bf16.h"
#include "kernels/cpu/matmul/matmul_highway.h"
#include "kernels/cpu/matmul/matmul_integer_amx.h"
#include "kernels/cpu/matmul/matmul_integer_avx2.h"
#include "kernels/cpu/matmul/matmul_integer_avx512.h"
#include "kernels/cpu/matmul/matmul_integer_avx_vnni.h"
#include "kernels/cpu/matmul/matmul_integer_highway.h"
#include "kernels/cpu/matmul/weight.h"

namespace foretoken::kernels::cpu {
namespace {

// A task's share of the weight: long enough for the prefetchers, short enough that threads end at about the same time.
constexpr int64_t kTaskBytes = 256 << 10;

// For more than one block of rows. This many inputs of this many panels are 256 KiB, which stay in the L2 cache. A
// block's rows of the range, 24 KiB of bf16, are read from outside the L2 cache once for all of these panels.
constexpr int64_t kRangeInputs = 1024;
constexpr int64_t kGroupPanels = 8;

// A weight of at most this size belongs to a small model, whose weights stay in the caches from step to step.
constexpr size_t kCachedBytes = 2 << 20;

constexpr int64_t kMinTasksPerThread = 4;

constexpr int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

// x in blocks of rows, each packed by itself.
struct PackedRows {
  const std::byte* data = nullptr;
  int64_t num_rows = 0;
  int64_t block_rows = 0;
  size_t row_bytes = 0;

  int64_t num_blocks() const { return CeilDiv(num_rows, block_rows); }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, num_rows - block * block_rows); }
};

// Rows of x with their inputs in the weight's order.
const uint16_t* ReorderedRows(const uint16_t* x, int64_t num_rows, std::span<const int32_t> input_order) {
  const size_t num_inputs = input_order.size();
  auto* out = ThreadWorkspace<uint16_t>(static_cast<size_t>(num_rows) * num_inputs);
  for (int64_t row = 0; row < num_rows; ++row, x += num_inputs) {
    uint16_t* const to = out + static_cast<size_t>(row) * num_inputs;
    for (size_t i = 0; i < num_inputs; ++i) to[i] = x[input_order[i]];
  }
  return out;
}

PackedRows Pack(const MatMulArgs& args, const MatMulKernel& kernel, Pages& scratch, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  PackedRows rows;
  rows.num_rows = args.x.shape[0];
  rows.block_rows = kernel.tile_shape(rows.num_rows).num_rows;
  rows.row_bytes = weight.padded_in_features() * kernel.packed_bytes_per_input;
  if (weight.integers() != nullptr) rows.row_bytes += weight.integers()->num_groups * kernel.packed_bytes_per_group;
  const size_t num_bytes = rows.num_rows * rows.row_bytes;
  if (scratch.num_bytes() < num_bytes) scratch = Pages(num_bytes);
  auto* packed = static_cast<std::byte*>(scratch.data());
  rows.data = packed;
  pool.ParallelFor(rows.num_blocks(), [&](int64_t block, int) {
    const int64_t first = block * rows.block_rows, num_rows = rows.rows_of(block);
    const uint16_t* x = args.x.as<uint16_t>() + first * weight.in_features();
    if (!weight.input_order().empty()) x = ReorderedRows(x, num_rows, weight.input_order());
    kernel.pack({.x = x,
                 .num_rows = num_rows,
                 .num_inputs = weight.in_features(),
                 .padded_num_inputs = weight.padded_in_features(),
                 .panels = weight.integers(),
                 .packed = packed + first * rows.row_bytes});
  });
  return rows;
}

// Panels that one thread multiplies with all rows, `tile_panels` at a time.
struct PanelGroup {
  int64_t first = 0;
  int64_t count = 0;
  int64_t tile_panels = 0;
  IndexRange outputs;     // of the product
  float* sums = nullptr;  // [T, count * kPanelWidth]
};

void Multiply(const MatMulArgs& args, const MatMulKernel& kernel, const PackedRows& rows, const PanelGroup& panels) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  const int64_t num_inputs = weight.padded_in_features();
  const int64_t range = rows.num_blocks() == 1 ? num_inputs : kRangeInputs;
  const int64_t stride = panels.count * kPanelWidth;
  for (int64_t first_input = 0; first_input < num_inputs; first_input += range) {
    for (int64_t block = 0; block < rows.num_blocks(); ++block) {
      const int64_t first_row = block * rows.block_rows;
      for (int64_t panel = 0; panel < panels.count; panel += panels.tile_panels) {
        kernel.multiply({.x = rows.data + first_row * rows.row_bytes,
                         .num_rows = rows.rows_of(block),
                         .panels = weight.panel(panels.first + panel),
                         .num_panels = std::min(panels.tile_panels, panels.count - panel),
                         .panel_bytes = weight.panel_bytes(),
                         .integers = weight.integers(),
                         .padded_num_inputs = num_inputs,
                         .first_input = first_input,
                         .end_input = std::min(first_input + range, num_inputs),
                         .sums = panels.sums + first_row * stride + panel * kPanelWidth,
                         .sums_stride = stride});
      }
    }
  }
}

// Prefetches the lines of `out` that Store will write. In a wide matrix every row has its own page, and some rows'
// misses at the end of each panel would interrupt the stream of weights.
void PrefetchOut(const MatMulArgs& args, const PanelGroup& panels) {
  const int64_t num_outputs = args.out.shape[1];
  for (int64_t row = 0; row < args.out.shape[0]; ++row) {
    const float* out = args.out.as<float>() + row * num_outputs + panels.outputs.begin;
    for (int64_t panel = 0; panel < panels.count; ++panel) __builtin_prefetch(out + panel * kPanelWidth, 1);
  }
}

// Writes finished sums: adds the bias, and the present values of `out` if the mode says so.
void Store(const MatMulArgs& args, const PanelGroup& panels) {
  const int64_t num_outputs = args.out.shape[1];
  const int64_t begin = panels.outputs.begin, count = panels.outputs.size();
  for (int64_t row = 0; row < args.out.shape[0]; ++row) {
    float* sums = panels.sums + row * panels.count * kPanelWidth;
    float* out = args.out.as<float>() + row * num_outputs + begin;
    if (args.bias != nullptr) {
      for (int64_t i = 0; i < count; ++i) sums[i] += args.bias[begin + i];
    }
    if (args.mode == OutputMode::kAdd) {
      for (int64_t i = 0; i < count; ++i) out[i] += sums[i];
    } else {
      std::copy_n(sums, count, out);
    }
  }
}

// The columns of `out` from `first_output` on, as many as the weight has outputs.
void MultiplyWeight(const MatMulArgs& args, int64_t first_output, const MatMulKernel& kernel, Pages& scratch,
                    ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  const PackedRows rows = Pack(args, kernel, scratch, pool);
  const bool streams = rows.num_blocks() == 1;
  const MatMulTileShape shape = kernel.tile_shape(rows.num_rows);
  const int64_t tile_panels = weight.num_bytes() <= kCachedBytes ? shape.num_cached_panels : shape.num_panels;
  const auto panel_bytes = static_cast<int64_t>(weight.panel_bytes());
  const int64_t wanted_panels = streams ? kTaskBytes / panel_bytes : kGroupPanels;
  const int64_t fair_panels = weight.num_panels() / (kMinTasksPerThread * pool.num_threads());
  const int64_t task_panels =
      CeilDiv(std::clamp(wanted_panels, int64_t{1}, std::max(fair_panels, int64_t{1})), tile_panels) * tile_panels;
  const int64_t group_panels = streams ? tile_panels : task_panels;
  pool.ParallelFor(CeilDiv(weight.num_panels(), task_panels), [&](int64_t task, int) {
    float* sums = ThreadWorkspace<float>(rows.num_rows * group_panels * kPanelWidth);
    const int64_t end = std::min((task + 1) * task_panels, weight.num_panels());
    for (int64_t first = task * task_panels; first < end; first += group_panels) {
      const int64_t count = std::min(group_panels, end - first);
      const IndexRange outputs = {first * kPanelWidth, std::min((first + count) * kPanelWidth, weight.out_features())};
      const PanelGroup panels = {.first = first,
                                 .count = count,
                                 .tile_panels = tile_panels,
                                 .outputs = {first_output + outputs.begin, first_output + outputs.end},
                                 .sums = sums};
      if (streams) PrefetchOut(args, panels);
      Multiply(args, kernel, rows, panels);
      Store(args, panels);
    }
  });
}

void CheckShapes(const MatMulArgs& args) {
  const Weight& weight = *args.weight;
  FT_CHECK(args.x.dtype == DType::kBF16 && args.x.shape == Shape(args.x.shape[0], weight.in_features()));
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape == Shape(args.x.shape[0], weight.out_features()));
}

}  // namespace

const MatMulKernel& KernelOf(Isa isa, const IntegerPanels* integers) {
  if (integers != nullptr) {
    if (isa == Isa::kAmx && integers->int8_rows) return AmxIntegerKernel(*integers);
    if (HasAvx512Integers(isa, integers->int8_rows)) return Avx512IntegerKernel(*integers);
    if (isa == Isa::kBaseline || !integers->int8_rows) return HighwayIntegerKernel(*integers);
    return isa == Isa::kAvxVnni ? AvxVnniIntegerKernel(*integers) : Avx2IntegerKernel(*integers);
  }
  switch (isa) {
    case Isa::kAmx:
      return AmxKernel();
    case Isa::kAvx512Bf16:
      return Avx512Bf16Kernel();
    case Isa::kAvx512Vnni:
    case Isa::kAvx512:
    case Isa::kAvxVnni:
    case Isa::kAvx2:
    case Isa::kBaseline:
      break;
  }
  return HighwayKernel();
}

void MatMul(const MatMulArgs& args, const MatMulKernel& kernel, Pages& scratch, ThreadPool& pool) {
  CheckShapes(args);
  FT_CHECK(AsCpuWeight(args.weight).stack().empty());
  if (args.x.shape[0] > 0) MultiplyWeight(args, /*first_output=*/0, kernel, scratch, pool);
}

void MatMul(const MatMulArgs& args, Isa isa, Pages& scratch, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  if (weight.stack().empty()) return MatMul(args, KernelOf(isa, weight.integers()), scratch, pool);
  CheckShapes(args);
  if (args.x.shape[0] == 0) return;
  MatMulArgs part = args;
  int64_t first_output = 0;
  for (const std::unique_ptr<CpuWeight>& stacked : weight.stack()) {
    part.weight = stacked.get();
    MultiplyWeight(part, first_output, KernelOf(isa, stacked->integers()), scratch, pool);
    first_output += stacked->out_features();
  }
}

}  // namespace foretoken::kernels::cpu
