// SPDX-License-Identifier: Apache-2.0
// Packs found weights, stacked along their outputs, into a backend's layout. This is the one place where a stored
// matrix is handed to a backend. A backend that has a layout for the matrix's integers gets them as they are.
// Otherwise, and where a quantisation is asked for, the rows become bf16, to nearest, ties to even, just before the
// backend reads them, on the thread that reads them. They are dropped when they are packed, so the extra memory is a
// few rows for each thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/quantization/found_weight.h"
#include "kernels/backend.h"

namespace foretoken::quantization {

struct MatrixPart {
  const FoundWeight* weight = nullptr;
  kernels::IndexRange rows;  // the range of the weight's rows that is taken
};

// Told about bytes of a file: before they are read, and when they will not be read again.
using Told = std::function<void(const void* begin, size_t num_bytes)>;

struct MatrixSource {
  std::span<const MatrixPart> parts;
  std::optional<kernels::IndexRange> inputs;  // unset: all
  kernels::Quantization quantization;
  // For parts of plain floats, as in kernels::WeightSource.
  Told fetch;
  Told release;
  // For each tensor of a stored part, whole and once, on the calling thread.
  Told fetch_tensor;
  Told release_tensor;
};

std::unique_ptr<kernels::Weight> PrepareMatrix(const MatrixSource& source, kernels::Backend& backend);

}  // namespace foretoken::quantization
