// SPDX-License-Identifier: Apache-2.0
// A digest of all tensors that a model reads, taken while their rows are in memory for another reason.
//
//   FT_ASSIGN_OR_RETURN(WeightDigest digest, WeightDigest::Make(config, checkpoint));
//   ... digest.AddRows(begin, num_bytes), on any thread, until every matrix's every row was added ...
//   const std::string name = digest.Finish();
//
// Each row of a matrix has an XXH3-128 of its own, and their sequence, with names, dtypes and vectors, a SHA-256. So
// the digest depends on no order, no thread count and no tensor-parallel degree. It tells checkpoints apart and is no
// seal: an attacker can make two checkpoints with one digest. Threads: AddRows may run on several at once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/weights/checkpoint.h"
#include "kernels/tensor_view.h"

namespace foretoken::model {

class WeightDigest {
 public:
  // The checkpoint outlives it. Errors: as Checkpoint::Find.
  static absl::StatusOr<WeightDigest> Make(const ModelConfig& config, const weights::Checkpoint& checkpoint);

  // Whole rows of one matrix, each row once.
  void AddRows(const void* begin, size_t num_bytes);
  // 32 hexadecimal digits, once all rows were added.
  std::string Finish() const;

 private:
  struct Entry {
    std::string name;
    kernels::ConstTensorView tensor;
    std::vector<std::array<uint8_t, 16>> rows;  // of a matrix; empty for a vector
  };

  std::vector<Entry> entries_;      // in the order of the model
  std::vector<Entry*> by_address_;  // the matrices
  std::unique_ptr<std::atomic<int64_t>> num_missing_rows_;
};

}  // namespace foretoken::model
