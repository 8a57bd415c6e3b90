// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/integer_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/quantize.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr int64_t kMaxGroup = 128;

// A group of a row, in all the forms that a kernel may want.
struct Group {
  std::array<uint16_t, kMaxGroup> bf16;
  std::array<float, kMaxGroup> values;
  std::array<int8_t, kMaxGroup> integers;
  RowGroup with;
};

void ReadGroup(const PackArgs& args, int64_t row, int64_t group_idx, Group& group) {
  const IntegerPanels& panels = *args.panels;
  const int64_t begin = group_idx * panels.group_size;
  const int64_t count = std::clamp<int64_t>(args.num_inputs - begin, 0, panels.group_size);
  std::copy_n(args.x + row * args.num_inputs + begin, count, group.bf16.begin());
  std::fill_n(group.bf16.begin() + count, panels.group_size - count, uint16_t{0});
  for (int64_t i = 0; i < panels.group_size; ++i) group.values[i] = FloatFromBf16(group.bf16[i]);
  group.with = {};
  if (panels.int8_rows) {
    group.with.scale = QuantizeRowGroup(group.values.data(), panels.group_size, group.integers.data());
    int32_t sum = 0;
    for (int64_t i = 0; i < panels.group_size; ++i) sum += group.integers[i];
    group.with.start = -panels.center() * sum;
    group.with.sum = group.with.scale * static_cast<float>(sum);
    for (int64_t i = 0; i < panels.group_size; ++i) group.values[i] = group.integers[i];
  } else if (panels.has_offsets) {
    for (int64_t i = 0; i < panels.group_size; ++i) group.with.sum += group.values[i];
  }
}

// Calls store(group, packed), which returns the end of what it wrote, for every group of every row.
template <typename Store>
void PackGroups(const PackArgs& args, Store store) {
  FT_CHECK(args.panels != nullptr && args.panels->group_size <= kMaxGroup);
  auto* packed = static_cast<std::byte*>(args.packed);
  Group group;
  for (int64_t group_idx = 0; group_idx < args.panels->num_groups; ++group_idx) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
      ReadGroup(args, row, group_idx, group);
      packed = store(group, packed);
      std::memcpy(packed, &group.with, sizeof(RowGroup));
      packed += sizeof(RowGroup);
    }
  }
}

std::byte* Append(const void* from, size_t num_bytes, std::byte* to) {
  std::memcpy(to, from, num_bytes);
  return to + num_bytes;
}

}  // namespace

void PackBf16RowGroups(const PackArgs& args) {
  const size_t num_bytes = static_cast<size_t>(args.panels->group_size) * sizeof(uint16_t);
  PackGroups(args, [&](const Group& group, std::byte* to) { return Append(group.bf16.data(), num_bytes, to); });
}

void PackInt8RowGroups(const PackArgs& args, QuantizeRow quantize) {
  const IntegerPanels& layout = *args.panels;
  auto* packed = static_cast<std::byte*>(args.packed);
  for (int64_t first = 0; first < layout.num_groups * layout.group_size; first += layout.group_size) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
      const RowGroup with = quantize(args.x + row * args.num_inputs + first, args.num_inputs - first, layout, packed);
      packed = Append(&with, sizeof(with), packed + layout.group_size);
    }
  }
}

void PackWideRowGroups(const PackArgs& args) {
  const size_t num_bytes = static_cast<size_t>(args.panels->group_size) * sizeof(float);
  PackGroups(args, [&](const Group& group, std::byte* to) { return Append(group.values.data(), num_bytes, to); });
}

}  // namespace foretoken::kernels::cpu
