// SPDX-License-Identifier: Apache-2.0
// A matrix in the layout of the CPU's kernels: panels of 16 outputs, of integers (integer_panels.h) or of bf16,
//   [ceil(N / 16)][ceil(K / 32) * 16][16][2]: panel, pair of inputs, output of the panel, input of the pair,
// so that a kernel streams memory in one direction, a vector of 16 outputs takes one 64-byte load per pair, and 16
// pairs are a tile for AMX. Outputs beyond N and inputs beyond K are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

inline constexpr int kPanelWidth = 16;
inline constexpr int kInputsPadding = 32;

class CpuWeight final : public Weight {
 public:
  CpuWeight(int64_t out_features, int64_t in_features);
  // `input_order` as in StoredMatrix.
  CpuWeight(int64_t out_features, int64_t in_features, const IntegerPanels& integers,
            std::span<const int32_t> input_order = {});
  // Weights of the same inputs, one below the other. It has no panels of its own.
  explicit CpuWeight(std::vector<std::unique_ptr<CpuWeight>> stack);

  std::span<const std::unique_ptr<CpuWeight>> stack() const { return stack_; }
  int64_t num_panels() const { return num_panels_; }
  int64_t padded_in_features() const { return padded_in_features_; }
  size_t panel_bytes() const { return panel_bytes_; }
  std::byte* panel(int64_t panel_idx) { return begin() + panel_idx * panel_bytes_; }
  const std::byte* panel(int64_t panel_idx) const { return begin() + panel_idx * panel_bytes_; }
  const IntegerPanels* integers() const { return integers_ ? &*integers_ : nullptr; }  // null: bf16
  // The inputs in the order in which panels hold them; empty: as they are.
  std::span<const int32_t> input_order() const { return input_order_; }
  // The elements of a panel of bf16.
  int64_t panel_elements() const { return padded_in_features_ * kPanelWidth; }
  uint16_t* bf16_panel(int64_t panel_idx) { return reinterpret_cast<uint16_t*>(panel(panel_idx)); }
  const uint16_t* bf16_panel(int64_t panel_idx) const { return reinterpret_cast<const uint16_t*>(panel(panel_idx)); }

 private:
  std::byte* begin() const { return static_cast<std::byte*>(pages_.data()); }

  std::optional<IntegerPanels> integers_;
  std::vector<int32_t> input_order_;
  std::vector<std::unique_ptr<CpuWeight>> stack_;
  int64_t num_panels_ = 0;
  int64_t padded_in_features_ = 0;
  size_t panel_bytes_ = 0;
  Pages pages_;
};

// Every Weight that this backend gets is a CpuWeight.
inline const CpuWeight& AsCpuWeight(const Weight* weight) { return *static_cast<const CpuWeight*>(weight); }

// As Backend::KeptGroups. It keeps groups of 16 integers and multiples of it; inputs in an order of their own must be
// taken whole. Parts of different groups stay apart if each begins with a panel. Otherwise all have common groups.
std::vector<IntegerGroups> KeptGroups(std::span<const StoredPart> parts, int64_t first_input);

// As Backend::MatrixBytes, without the padding of the last panel.
size_t MatrixBytes(const Shape& shape, const Quantization& quantization, const std::optional<IntegerGroups>& kept);

// Packs the parts on all threads. Each thread fetches, packs and releases about a MiB of source at a time. So the
// memory in use never exceeds the packed weight and a MiB per thread. If a release reads the rows once more, that work
// is spread over the threads too.
// The isa decides the order of integers.
std::unique_ptr<CpuWeight> PrepareWeight(const WeightSource& source, ThreadPool& pool, Isa isa = Isa::kBaseline);

}  // namespace foretoken::kernels::cpu
