// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/gguf_matrix.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/quantization/gguf_blocks.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

// The bytes of a row, by its place among the model's rows.
class RowReader {
 public:
  explicit RowReader(const StoredTensor& tensor)
      : tensor_(&tensor), row_bytes_(tensor.bytes.size() / static_cast<size_t>(tensor.shape[0])) {}

  const uint8_t* operator[](int64_t row) const {
    return reinterpret_cast<const uint8_t*>(tensor_->bytes.data()) + StoredRow(*tensor_, row) * row_bytes_;
  }

 private:
  const StoredTensor* tensor_;
  size_t row_bytes_;
};

class BlockMatrix : public kernels::StoredMatrix {
 public:
  BlockMatrix(const Shape& shape, const BlockFormat& format, const StoredTensor& tensor)
      : StoredMatrix(shape), format_(format), rows_(tensor) {}

  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    ForEachGroup(first_row, num_rows, [&](const GroupedBlock& block, int64_t group) {
      const int8_t* integers = block.integers.data() + group * format_.group_size;
      const float scale = block.scales[group];
      for (int64_t i = 0; i < format_.group_size; ++i) values[i] = scale * static_cast<float>(integers[i]);
      for (int64_t i = 0; format_.has_minimums && i < format_.group_size; ++i) values[i] += block.minimums[group];
      values += format_.group_size;
    });
  }

  std::optional<kernels::IntegerGroups> groups() const override {
    kernels::IntegerGroups groups = {.bits = format_.bits,
                                     .group_size = format_.group_size,
                                     .has_offsets = format_.has_minimums,
                                     .scale_dtype = format_.scale_dtype,
                                     .is_e2m1 = format_.is_e2m1};
    if (format_.factors != nullptr) groups.blocks = {.num_groups = format_.num_groups(), .zero = zero()};
    return groups;
  }

  void ReadGroups(int64_t first_row, int64_t num_rows, uint8_t* codes, float* scales, float* offsets) const override {
    ForEachGroup(first_row, num_rows, [&](const GroupedBlock& block, int64_t group) {
      const int8_t* integers = block.integers.data() + group * format_.group_size;
      for (int64_t i = 0; i < format_.group_size; ++i) *codes++ = static_cast<uint8_t>(integers[i] - format_.lowest);
      *scales++ = block.scales[group];
      if (format_.has_minimums) {
        *offsets++ = block.scales[group] * static_cast<float>(zero()) + block.minimums[group];
      }
    });
  }

  void ReadFactors(int64_t first_row, int64_t num_rows, kernels::ScaleFactors& to) const override {
    ForEachBlock(first_row, num_rows, [&](const uint8_t* bytes) {
      const BlockFactors factors = format_.factors(bytes);
      to.scales.push_back(factors.scale);
      to.minimums.push_back(factors.minimum);
      const auto append = [&](const auto& from, std::vector<int8_t>& table) {
        table.insert(table.end(), from.begin(), from.begin() + format_.num_groups());
      };
      append(factors.scale_factors, to.scale_factors);
      append(factors.minimum_factors, to.minimum_factors);
    });
  }

 private:
  // The integer that the centre of the codes stands for.
  int zero() const { return (1 << (format_.bits - 1)) + format_.lowest; }

  template <typename Visitor>
  void ForEachBlock(int64_t first_row, int64_t num_rows, const Visitor& visit) const {
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      const uint8_t* bytes = rows_[row];
      for (int64_t at = 0; at < shape()[1]; at += format_.block_values, bytes += format_.block_bytes) visit(bytes);
    }
  }
  template <typename Visitor>
  void ForEachGroup(int64_t first_row, int64_t num_rows, const Visitor& visit) const {
    GroupedBlock block;
    ForEachBlock(first_row, num_rows, [&](const uint8_t* bytes) {
      format_.decode(bytes, block);
      for (int64_t group = 0; group < format_.num_groups(); ++group) visit(block, group);
    });
  }

  const BlockFormat& format_;
  RowReader rows_;
};

// Floats that need another order of rows.
class FloatRows : public kernels::StoredMatrix {
 public:
  FloatRows(const Shape& shape, const StoredTensor& tensor) : StoredMatrix(shape), tensor_(tensor) {}

  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    const int64_t num_inputs = shape()[1];
    const ScaleReader reader(tensor_);
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      const int64_t begin = StoredRow(tensor_, row) * num_inputs;
      for (int64_t i = 0; i < num_inputs; ++i) *values++ = reader[begin + i];
    }
  }

 private:
  const StoredTensor& tensor_;
};

}  // namespace

bool IsGguf(const StoredTensor& tensor) {
  return FindBlockFormat(tensor.dtype) != nullptr || tensor.interleaved_head_dim.has_value();
}

absl::StatusOr<FoundWeight> OpenGguf(TensorSet tensors, const Shape& shape) {
  const BlockFormat* format = FindBlockFormat(tensors.Find("weight")->dtype);
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  FT_ASSIGN_OR_RETURN(const StoredTensor* tensor,
                      format != nullptr ? tensors.Take("weight", {format->name}, {num_outputs, num_inputs})
                                        : tensors.Take("weight", {"F32", "F16", "BF16"}, {num_outputs, num_inputs}));
  FoundWeight found = {.tensors = tensors.taken()};
  found.format = absl::StrCat("gguf ", tensor->dtype);
  if (tensor->interleaved_head_dim) {
    if (num_outputs % *tensor->interleaved_head_dim != 0) {
      return tensors.Error("weight", "expected whole heads of ", *tensor->interleaved_head_dim, " rows, got ",
                           num_outputs, " rows");
    }
    absl::StrAppend(&found.format, ", interleaved heads of ", *tensor->interleaved_head_dim);
  }
  if (format != nullptr) {
    found.stored = std::make_unique<BlockMatrix>(shape, *format, *tensor);
  } else {
    found.stored = std::make_unique<FloatRows>(shape, *tensor);
  }
  return found;
}

}  // namespace foretoken::quantization
