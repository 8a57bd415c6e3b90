// SPDX-License-Identifier: Apache-2.0
// A weight as a checkpoint holds it: plain floats, or a matrix in a format of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/quantization/tensor_set.h"
#include "kernels/stored_matrix.h"
#include "kernels/tensor_view.h"

namespace foretoken::quantization {

struct FoundWeight {
  kernels::ConstTensorView floats;                // meaningless if there is `stored`
  std::unique_ptr<kernels::StoredMatrix> stored;  // null: plain floats
  // How `stored` reads its tensors: what the tensors do not say themselves, too. Empty for plain floats.
  std::string format;
  std::vector<NamedTensor> tensors;  // all that the weight reads, each once

  size_t num_bytes() const {
    size_t total = 0;
    for (const NamedTensor& named : tensors) total += named.tensor->bytes.size();
    return total;
  }
};

}  // namespace foretoken::quantization
