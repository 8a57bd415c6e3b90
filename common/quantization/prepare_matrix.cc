// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/prepare_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/weights/checkpoint.h"
#include "kernels/check.h"

namespace foretoken::quantization {
namespace {

using kernels::ConstTensorView;
using kernels::IndexRange;
using kernels::Shape;
using kernels::StoredMatrix;

constexpr int64_t kPieceRows = 16;  // a cache line of the words of GPTQ

// The rows of stored parts as bf16. Rows take memory from Fill on until their pages are released. All parts share one
// range of addresses, because a system gives a process few of them, and a head for some ids has thousands of parts.
// Each part begins a page, so that releasing it leaves the others in memory.
class UnpackedParts {
 public:
  explicit UnpackedParts(std::span<const MatrixPart> parts) {
    for (const auto& [weight, rows] : parts) {
      if (weight->stored == nullptr) continue;
      parts_.push_back({.begin = num_bytes_, .matrix = weight->stored.get(), .first_row = rows.begin});
      num_bytes_ += (rows.size() * parts_.back().row_bytes() + kPageBytes - 1) / kPageBytes * kPageBytes;
    }
    if (num_bytes_ == 0) return;
    void* data =
        ::mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FT_CHECK(data != MAP_FAILED);
    data_ = static_cast<std::byte*>(data);
  }
  UnpackedParts(const UnpackedParts&) = delete;
  UnpackedParts& operator=(const UnpackedParts&) = delete;
  ~UnpackedParts() {
    if (data_ != nullptr) ::munmap(data_, num_bytes_);
  }

  // Of the stored part at this place among the stored ones.
  ConstTensorView View(size_t part, int64_t num_rows) const {
    return {.data = data_ + parts_[part].begin,
            .dtype = kernels::DType::kBF16,
            .shape = Shape(num_rows, parts_[part].matrix->shape()[1])};
  }
  bool Holds(const void* begin) const { return data_ != nullptr && begin >= data_ && begin < data_ + num_bytes_; }

  // Whole rows of a part. Threads: any, several at once with other rows.
  void Fill(const void* begin, size_t num_bytes) const {
    const size_t offset = static_cast<const std::byte*>(begin) - data_;
    const Part& part = *std::prev(std::ranges::upper_bound(parts_, offset, {}, &Part::begin));
    const auto first = static_cast<int64_t>((offset - part.begin) / part.row_bytes());
    const int64_t end = first + static_cast<int64_t>(num_bytes / part.row_bytes());
    const int64_t num_inputs = part.matrix->shape()[1];
    std::vector<float> values(kPieceRows * num_inputs);
    for (int64_t row = first; row < end; row += kPieceRows) {
      const int64_t count = std::min(kPieceRows, end - row);
      part.matrix->ReadValues(part.first_row + row, count, values.data());
      auto* out = reinterpret_cast<uint16_t*>(data_ + part.begin) + row * num_inputs;
      for (int64_t i = 0; i < count * num_inputs; ++i) out[i] = kernels::Bf16FromFloat(values[i]);
    }
  }

 private:
  struct Part {
    size_t begin = 0;  // in bytes
    const StoredMatrix* matrix = nullptr;
    int64_t first_row = 0;

    size_t row_bytes() const { return static_cast<size_t>(matrix->shape()[1]) * sizeof(uint16_t); }
  };
  static constexpr size_t kPageBytes = 4096;

  std::vector<Part> parts_;
  size_t num_bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Parts that are rows of one stored matrix share its tensors, which are told once.
void TellOfTensors(std::span<const MatrixPart> parts, const Told& told) {
  std::vector<const weights::StoredTensor*> done;
  for (const MatrixPart& part : parts) {
    if (part.weight->stored == nullptr) continue;
    for (const NamedTensor& named : part.weight->tensors) {
      if (std::ranges::find(done, named.tensor) != done.end()) continue;
      done.push_back(named.tensor);
      told(named.tensor->bytes.data(), named.tensor->bytes.size());
    }
  }
}

ConstTensorView RowsOf(ConstTensorView view, const IndexRange& rows) {
  view.data = view.as<std::byte>() + rows.begin * view.shape[1] * kernels::SizeOf(view.dtype);
  view.shape.dims[0] = rows.size();
  return view;
}

// The source's parts, if the backend can keep them as they are and nothing else is asked for; otherwise empty.
std::vector<kernels::StoredPart> IntegersToKeep(const MatrixSource& source, const kernels::Backend& backend) {
  std::vector<kernels::StoredPart> stored;
  for (const auto& [weight, rows] : source.parts) {
    if (weight->stored == nullptr) return {};
    stored.push_back({.matrix = weight->stored.get(), .rows = rows});
  }
  if (source.quantization.weights != kernels::WeightQuantization::kNone) return {};
  const kernels::StoredMatrix& first = *stored[0].matrix;
  const IndexRange all = {0, first.shape()[1]}, inputs = source.inputs.value_or(all);
  // A rank's part of the inputs has a part of every group whose inputs are not side by side.
  if (!first.input_order().empty() && inputs != all) return {};
  return backend.KeptGroups(stored, inputs.begin).empty() ? std::vector<kernels::StoredPart>() : stored;
}

}  // namespace

std::unique_ptr<kernels::Weight> PrepareMatrix(const MatrixSource& source, kernels::Backend& backend) {
  if (const std::vector<kernels::StoredPart> stored = IntegersToKeep(source, backend); !stored.empty()) {
    TellOfTensors(source.parts, source.fetch_tensor);
    std::unique_ptr<kernels::Weight> weight =
        backend.PrepareWeight({.stored = stored, .inputs = source.inputs, .quantization = source.quantization});
    TellOfTensors(source.parts, source.release_tensor);
    return weight;
  }
  const UnpackedParts unpacked(source.parts);
  std::vector<ConstTensorView> views;
  size_t num_stored = 0;
  for (const auto& [weight, rows] : source.parts) {
    views.push_back(weight->stored != nullptr ? unpacked.View(num_stored++, rows.size())
                                              : RowsOf(weight->floats, rows));
  }
  const auto fetch = [&](const void* begin, size_t num_bytes) {
    if (unpacked.Holds(begin)) {
      unpacked.Fill(begin, num_bytes);
    } else {
      source.fetch(begin, num_bytes);
    }
  };
  const auto release = [&](const void* begin, size_t num_bytes) {
    if (unpacked.Holds(begin)) {
      weights::ReleasePages(begin, num_bytes);
    } else {
      source.release(begin, num_bytes);
    }
  };
  TellOfTensors(source.parts, source.fetch_tensor);
  std::unique_ptr<kernels::Weight> weight = backend.PrepareWeight({.parts = views,
                                                                   .inputs = source.inputs,
                                                                   .quantization = source.quantization,
                                                                   .fetch = fetch,
                                                                   .release = release});
  TellOfTensors(source.parts, source.release_tensor);
  return weight;
}

}  // namespace foretoken::quantization
