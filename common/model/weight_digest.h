// SPDX-License-Identifier: Apache-2.0
// A digest of all tensors that a model reads. It is computed while their rows are in memory to be packed.
//
//   FT_ASSIGN_OR_RETURN(WeightDigest digest, WeightDigest::Make(config, checkpoint));
//   ... digest.AddRows(begin, num_bytes), on any thread, until every row of every matrix was added ...
//   const std::string name = digest.Finish();
//
// Each row of a matrix has an XXH3-128 of its own, and so has each row of a quantised matrix's tensors. The digest is a
// SHA-256 over these in order, with names, dtypes and vectors. So it does not depend on the order of reading, the
// thread count or the tensor-parallel degree. It distinguishes checkpoints but is not a seal: an attacker can make two
// checkpoints with one digest. Threads: several may call AddRows at the same time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/quantization/find_weight.h"
#include "kernels/dtype.h"

namespace foretoken::model {

class WeightDigest {
 public:
  // The weights' checkpoint must outlive it.
  // Errors: as quantization::FindWeight.
  static absl::StatusOr<WeightDigest> Make(const ModelConfig& config, const quantization::OpenedWeights& weights);

  // Adds whole rows of one matrix, each row once.
  void AddRows(const void* begin, size_t num_bytes);
  // Returns 32 hexadecimal digits, once all rows were added.
  std::string Finish() const;

 private:
  struct Entry {
    std::string name;
    std::string format;                           // of a stored matrix, with the dtype; empty for plain floats
    kernels::DType dtype = kernels::DType::kF32;  // of plain floats
    std::span<const std::byte> bytes;
    std::vector<std::array<uint8_t, 16>> rows;  // one per row of a matrix; empty for a vector of plain floats
  };

  std::vector<Entry> entries_;      // in the model's order
  std::vector<Entry*> by_address_;  // the matrices' entries
  std::unique_ptr<std::atomic<int64_t>> num_missing_rows_;
};

}  // namespace foretoken::model
