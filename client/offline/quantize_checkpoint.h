// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint again with integers in place of its layers' matrices, in compressed-tensors' pack-quantized form
// (common/quantization/pack_quantized.h). They are the integers that --weight_quantization makes when it loads the
// first checkpoint (kernels/quantize.h), so a server of the second says the same tokens.
//
//   FT_ASSIGN_OR_RETURN(const QuantizedSize size,
//                       QuantizeCheckpoint({.input = "models/llama", .output = "models/llama-w4", .bits = 4}));
//
// The input may be quantised itself, in any form that the product reads. A quantised embedding, head or router stays as
// it is, or becomes bf16 if it cannot be read without the input's declaration. Every other file of the input is copied,
// and so are the chat templates in its folder additional_chat_templates, but not weights in other forms. The memory
// needed is some rows of a matrix, and the scales of one. A run that fails leaves no file behind. Errors:
// INVALID_ARGUMENT names a matrix whose inputs the group size does not divide, a matrix with a value that is not finite
// as bf16, or an output that exists; CANCELLED; the system's name a file or a directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cancellation.h"

namespace foretoken::client {

struct QuantizeOptions {
  std::string input;   // directory of a checkpoint
  std::string output;  // a directory that does not exist, or is empty
  int bits = 4;        // 4 or 8
  int64_t group_size = 32;
  int head_bits = 0;                                // 4 or 8; 0: the head stays as it is
  int64_t max_file_bytes = int64_t{5'000'000'000};  // of a file with weights, unless one tensor alone has more
  const Cancellation* cancellation = nullptr;       // may end the run between two tensors
};

struct QuantizedSize {
  int64_t num_matrices = 0;
  int64_t num_bytes_before = 0;  // of all tensors
  int64_t num_bytes_after = 0;
};

// `progress` is called with the bytes that are written, and those of all tensors to write.
absl::StatusOr<QuantizedSize> QuantizeCheckpoint(
    const QuantizeOptions& options, const std::function<void(int64_t num_bytes_done, int64_t num_bytes)>& progress);

}  // namespace foretoken::client
