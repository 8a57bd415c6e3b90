// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/weight.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/matmul/matmul_integer_avx512.h"
#include "kernels/quantize.h"

namespace foretoken::kernels::cpu {
namespace {

// The bytes of source that a thread packs between two releases. A core's cache holds them until the release has read
// them again.
constexpr size_t kTaskBytes = size_t{1} << 20;

constexpr int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

// A row of the stacked parts.
struct SourceRow {
  const std::byte* data = nullptr;  // null: beyond the last row
  DType dtype = DType::kBF16;
};

// Returns row `row` of the stacked parts, from input `first_input` on.
SourceRow FindRow(std::span<const ConstTensorView> parts, int64_t row, int64_t first_input) {
  for (const ConstTensorView& part : parts) {
    if (row < part.shape[0]) {
      const int64_t element = row * part.shape[1] + first_input;
      return {part.as<std::byte>() + element * SizeOf(part.dtype), part.dtype};
    }
    row -= part.shape[0];
  }
  return {};
}

// Converts inputs [begin, begin + count) of a row to bf16.
void ReadRow(const SourceRow& row, int64_t begin, int64_t count, uint16_t* out) {
  switch (row.dtype) {
    case DType::kBF16: {
      const uint16_t* from = reinterpret_cast<const uint16_t*>(row.data) + begin;
      // With a size that the compiler knows, the copy becomes moves of registers.
      if (count == kInputsPadding) {
        std::memcpy(out, from, kInputsPadding * sizeof(uint16_t));
      } else {
        std::copy_n(from, count, out);
      }
      return;
    }
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = Bf16FromFloat(FloatFromF16(reinterpret_cast<const uint16_t*>(row.data)[begin + i]));
      }
      return;
    case DType::kF32:
      for (int64_t i = 0; i < count; ++i) out[i] = Bf16FromFloat(reinterpret_cast<const float*>(row.data)[begin + i]);
      return;
    case DType::kI32:
      break;
  }
  FT_CHECK(row.dtype != DType::kI32);
}

void PackPanel(const WeightSource& source, int64_t panel_idx, CpuWeight& weight) {
  constexpr int kPairs = kInputsPadding / 2;
  const int64_t first_input = source.inputs ? source.inputs->begin : 0;
  std::array<SourceRow, kPanelWidth> rows;
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    rows[lane] = FindRow(source.parts, panel_idx * kPanelWidth + lane, first_input);
  }
  uint16_t* panel = weight.bf16_panel(panel_idx);
  for (int64_t begin = 0; begin < weight.in_features(); begin += kInputsPadding) {
    const int64_t count = std::min<int64_t>(kInputsPadding, weight.in_features() - begin);
    std::array<std::array<uint16_t, kInputsPadding>, kPanelWidth> inputs;
    if (count < kInputsPadding) inputs = {};
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      if (rows[lane].data != nullptr) {
        ReadRow(rows[lane], begin, count, inputs[lane].data());
      } else {
        inputs[lane] = {};
      }
    }
    // Moves two inputs at a time, because they stay side by side.
    uint16_t* tile = panel + begin * kPanelWidth;  // [16 pairs][16 lanes][2]
    for (int pair = 0; pair < kPairs; ++pair) {
      for (int lane = 0; lane < kPanelWidth; ++lane) {
        std::memcpy(tile + (pair * kPanelWidth + lane) * 2, inputs[lane].data() + pair * 2, 2 * sizeof(uint16_t));
      }
    }
  }
}

// The integers of a panel's outputs. Outputs beyond the last row keep the scale 0.
GroupedRows RowsOf(const IntegerPanels& layout) {
  return {kPanelWidth,
          layout.num_groups * layout.group_size,
          {.bits = layout.source_bits(),
           .group_size = layout.group_size,
           .has_offsets = layout.has_offsets,
           .blocks = layout.blocks}};
}

void Pack(const GroupedRows& rows, const IntegerPanels& layout, std::byte* panel) {
  PackIntegers(layout,
               {.codes = rows.codes.data(),
                .scales = rows.scales.data(),
                .offsets = rows.offsets.data(),
                .factors = &rows.factors},
               panel);
}

// Rounds a panel's rows to integers.
void QuantizePanel(const WeightSource& source, int64_t panel_idx, CpuWeight& weight) {
  const IntegerPanels& layout = *weight.integers();
  const int64_t first_input = source.inputs ? source.inputs->begin : 0;
  GroupedRows rows = RowsOf(layout);
  std::vector<float> values(rows.num_inputs);
  std::vector<uint16_t> bf16(rows.num_inputs);
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    const SourceRow row = FindRow(source.parts, panel_idx * kPanelWidth + lane, first_input);
    if (row.data == nullptr) continue;
    ReadRow(row, 0, weight.in_features(), bf16.data());
    for (int64_t i = 0; i < rows.num_inputs; ++i) values[i] = FloatFromBf16(bf16[i]);
    for (int64_t group = 0; group < rows.num_groups; ++group) {
      const int64_t begin = group * layout.group_size;
      rows.scales[lane * rows.num_groups + group] = QuantizeGroup(values.data() + begin, layout.group_size, layout.bits,
                                                                  rows.codes.data() + lane * rows.num_inputs + begin);
    }
  }
  Pack(rows, layout, weight.panel(panel_idx));
}

// Copies a panel's stored integers.
void CopyPanel(const WeightSource& source, int64_t panel_idx, CpuWeight& weight) {
  const IntegerPanels& layout = *weight.integers();
  const int64_t first_input = source.inputs ? source.inputs->begin : 0;
  GroupedRows rows = RowsOf(layout);
  int64_t first = panel_idx * kPanelWidth;  // within the part
  for (const StoredPart& part : source.stored) {
    const IndexRange taken = {std::max<int64_t>(first, 0), std::min(first + kPanelWidth, part.rows.size())};
    if (taken.size() > 0) {
      CopyIntegers(part, taken, {first_input, first_input + weight.in_features()}, taken.begin - first, rows);
    }
    first -= part.rows.size();
  }
  Pack(rows, layout, weight.panel(panel_idx));
}

// Calls `told` once per part, with its rows among the stacked rows [begin, end).
void Tell(const std::function<void(const void* begin, size_t num_bytes)>& told, std::span<const ConstTensorView> parts,
          int64_t begin, int64_t end) {
  if (!told) return;
  for (const ConstTensorView& part : parts) {
    const int64_t num_rows = part.shape[0];
    const int64_t first = std::clamp<int64_t>(begin, 0, num_rows);
    const int64_t last = std::clamp<int64_t>(end, 0, num_rows);
    const size_t row_bytes = static_cast<size_t>(part.shape[1]) * SizeOf(part.dtype);
    if (first < last) told(part.as<std::byte>() + first * row_bytes, (last - first) * row_bytes);
    begin -= num_rows;
    end -= num_rows;
  }
}

size_t NumBytes(int64_t out_features, int64_t in_features) {
  return static_cast<size_t>(CeilDiv(out_features, kPanelWidth) * kPanelWidth) *
         static_cast<size_t>(CeilDiv(in_features, kInputsPadding) * kInputsPadding) * sizeof(uint16_t);
}

int PanelBits(const IntegerGroups& groups) { return groups.is_e2m1 ? 4 : groups.bits; }

// The largest group that a kernel takes and that never spans two of the file's, and what else kernels ask for.
IntegerGroups NarrowGroups(IntegerGroups groups, int64_t first_input) {
  const int64_t stored_size = groups.group_size;
  groups.group_size = groups.bits == 6 ? 32 : 128;
  while (stored_size % groups.group_size != 0 || first_input % groups.group_size != 0) groups.group_size /= 2;
  if (groups.blocks &&
      (groups.group_size != stored_size || first_input % (groups.blocks->num_groups * groups.group_size) != 0)) {
    groups.blocks.reset();
  }
  return groups;
}

// Returns the layout of the weight's panels of integers. Unset: the weight keeps bf16. `stored` is set if the source
// has stored parts, and is what KeptGroups says of them.
std::optional<IntegerPanels> PanelsOf(const WeightSource& source, const std::optional<IntegerGroups>& stored,
                                      int64_t in_features, Isa isa) {
  const Quantization& quantization = source.quantization;
  IntegerPanels panels = {.bits = quantization.weights == WeightQuantization::kInt8 ? 8 : 4,
                          .group_size = quantization.group_size,
                          .int8_rows = quantization.int8_rows,
                          .order = HasAvx512Integers(isa, quantization.int8_rows)
                                       ? Avx512OrderOf(quantization.int8_rows)
                                       : IntegerOrder::kQuads};
  if (stored) {
    panels.bits = PanelBits(*stored);
    panels.is_e2m1 = stored->is_e2m1;
    panels.group_size = stored->group_size;
    panels.scale_dtype = stored->scale_dtype;
    panels.blocks = stored->blocks;
    panels.has_offsets = stored->has_offsets;
  } else if (quantization.weights == WeightQuantization::kNone) {
    return std::nullopt;
  }
  panels.num_groups = CeilDiv(in_features, panels.group_size);
  return panels;
}

// The parts have one layout: if they are stored, that of `stored`.
std::unique_ptr<CpuWeight> PrepareAlike(const WeightSource& source, const std::optional<IntegerGroups>& stored,
                                        ThreadPool& pool, Isa isa) {
  const int64_t num_inputs = source.parts.empty() ? source.stored[0].matrix->shape()[1] : source.parts[0].shape[1];
  const IndexRange inputs = source.inputs.value_or(IndexRange{.begin = 0, .end = num_inputs});
  FT_CHECK(inputs.begin >= 0 && inputs.begin < inputs.end && inputs.end <= num_inputs);
  int64_t out_features = 0;
  size_t source_bytes = 0;
  for (const ConstTensorView& part : source.parts) {
    FT_CHECK(part.shape.rank == 2 && part.shape[1] == num_inputs && part.dtype != DType::kI32);
    out_features += part.shape[0];
    source_bytes += part.num_bytes();  // all inputs, because unused inputs are released too
  }
  for (const StoredPart& part : source.stored) {
    FT_CHECK(part.matrix->shape()[1] == num_inputs);
    out_features += part.rows.size();
    source_bytes += part.rows.size() * num_inputs;
  }
  FT_CHECK(out_features > 0);
  const std::optional<IntegerPanels> panels = PanelsOf(source, stored, inputs.size(), isa);
  std::span<const int32_t> input_order;
  if (!source.stored.empty()) input_order = source.stored[0].matrix->input_order();
  FT_CHECK(input_order.empty() || inputs.size() == num_inputs);
  auto weight = panels ? std::make_unique<CpuWeight>(out_features, inputs.size(), *panels, input_order)
                       : std::make_unique<CpuWeight>(out_features, inputs.size());
  const auto pack = !source.stored.empty() ? CopyPanel : panels ? QuantizePanel : PackPanel;
  const int64_t num_panels = weight->num_panels();
  const int64_t num_tasks = std::clamp<int64_t>(CeilDiv(source_bytes, kTaskBytes), 1, num_panels);
  const int64_t task_panels = CeilDiv(num_panels, num_tasks);
  pool.ParallelFor(CeilDiv(num_panels, task_panels), [&](int64_t task, int) {
    const int64_t first = task * task_panels;
    const int64_t last = std::min(first + task_panels, num_panels);
    Tell(source.fetch, source.parts, first * kPanelWidth, last * kPanelWidth);
    for (int64_t panel = first; panel < last; ++panel) pack(source, panel, *weight);
    Tell(source.release, source.parts, first * kPanelWidth, last * kPanelWidth);
  });
  return weight;
}

int64_t SumOfOutputs(std::span<const std::unique_ptr<CpuWeight>> stack) {
  int64_t num_outputs = 0;
  for (const auto& weight : stack) num_outputs += weight->out_features();
  return num_outputs;
}

size_t SumOfBytes(std::span<const std::unique_ptr<CpuWeight>> stack) {
  size_t num_bytes = 0;
  for (const auto& weight : stack) num_bytes += weight->num_bytes();
  return num_bytes;
}

// Without blocks, the scales of groups are kept in pairs.
size_t KeptBytes(const Shape& shape, const IntegerGroups& groups) {
  const int64_t num_groups = shape[1] / groups.group_size;
  const int64_t code_bytes = shape.num_elements() * PanelBits(groups) / 8;
  if (groups.blocks) {
    const int64_t num_blocks = CeilDiv(num_groups, groups.blocks->num_groups);
    const int64_t block_bytes =
        2 * static_cast<int64_t>(SizeOf(DType::kF16)) + groups.blocks->num_groups * (groups.has_offsets ? 2 : 1);
    return code_bytes + shape[0] * num_blocks * block_bytes;
  }
  const int64_t group_bytes =
      static_cast<int64_t>(SizeOf(groups.scale_dtype) + (groups.has_offsets ? sizeof(float) : 0));
  return code_bytes + shape[0] * (num_groups + num_groups % 2) * group_bytes;
}

}  // namespace

size_t MatrixBytes(const Shape& shape, const Quantization& quantization, const std::optional<IntegerGroups>& kept) {
  const auto num_elements = static_cast<size_t>(shape.num_elements());
  if (kept) return KeptBytes(shape, *kept);
  const size_t scale_bytes = num_elements / quantization.group_size * SizeOf(DType::kBF16);
  switch (quantization.weights) {
    case WeightQuantization::kNone:
      break;
    case WeightQuantization::kFp8:  // which another backend computes
      return num_elements + shape[0] * sizeof(float);
    case WeightQuantization::kInt8:
      return num_elements + scale_bytes;
    case WeightQuantization::kInt4:
      return num_elements / 2 + scale_bytes;
  }
  return num_elements * SizeOf(DType::kBF16);
}

CpuWeight::CpuWeight(int64_t out_features, int64_t in_features)
    : Weight(out_features, in_features, NumBytes(out_features, in_features)),
      num_panels_(CeilDiv(out_features, kPanelWidth)),
      padded_in_features_(CeilDiv(in_features, kInputsPadding) * kInputsPadding),
      panel_bytes_(static_cast<size_t>(panel_elements()) * sizeof(uint16_t)),
      pages_(num_bytes()) {}

CpuWeight::CpuWeight(int64_t out_features, int64_t in_features, const IntegerPanels& integers,
                     std::span<const int32_t> input_order)
    : Weight(out_features, in_features, CeilDiv(out_features, kPanelWidth) * integers.num_bytes()),
      integers_(integers),
      input_order_(input_order.begin(), input_order.end()),
      num_panels_(CeilDiv(out_features, kPanelWidth)),
      padded_in_features_(integers.num_groups * integers.group_size),
      panel_bytes_(integers.num_bytes()),
      pages_(num_bytes()) {}

CpuWeight::CpuWeight(std::vector<std::unique_ptr<CpuWeight>> stack)
    : Weight(SumOfOutputs(stack), stack[0]->in_features(), SumOfBytes(stack)), stack_(std::move(stack)) {}

std::vector<IntegerGroups> KeptGroups(std::span<const StoredPart> parts, int64_t first_input) {
  const std::optional<IntegerGroups> common = CommonGroups(parts);
  if (!common || common->group_size % 16 != 0 || first_input % 16 != 0 || (common->is_reordered && first_input != 0)) {
    return {};
  }
  const bool stay_apart = std::all_of(parts.begin(), parts.end() - 1,
                                      [](const StoredPart& part) { return part.rows.size() % kPanelWidth == 0; });
  std::vector<IntegerGroups> kept;
  for (const StoredPart& part : parts) {
    kept.push_back(NarrowGroups(stay_apart ? *part.matrix->groups() : *common, first_input));
  }
  return kept;
}

std::unique_ptr<CpuWeight> PrepareWeight(const WeightSource& source, ThreadPool& pool, Isa isa) {
  FT_CHECK(source.quantization.weights != WeightQuantization::kFp8);
  FT_CHECK(source.parts.empty() != source.stored.empty());
  if (source.stored.empty()) return PrepareAlike(source, std::nullopt, pool, isa);
  const std::vector<IntegerGroups> kept = KeptGroups(source.stored, source.inputs ? source.inputs->begin : 0);
  FT_CHECK(!kept.empty());
  std::vector<std::unique_ptr<CpuWeight>> stack;
  for (size_t first = 0, end = 0; first < kept.size(); first = end) {
    while (end < kept.size() && kept[end] == kept[first]) ++end;
    WeightSource alike = source;
    alike.stored = source.stored.subspan(first, end - first);
    stack.push_back(PrepareAlike(alike, kept[first], pool, isa));
  }
  return stack.size() == 1 ? std::move(stack[0]) : std::make_unique<CpuWeight>(std::move(stack));
}

}  // namespace foretoken::kernels::cpu
