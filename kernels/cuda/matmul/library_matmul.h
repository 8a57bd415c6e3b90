// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, whose sums may have any order: out = x weight^T, or out += the same, of bf16 rows with
// f32 sums.
//
//   const OpenedLibrary opened = OpenLibrary("libcublasLt.so.13", device);
//   const LibraryMatMul matmul(*opened.library, {.num_rows = 1024, .num_outputs = 2048, .num_inputs = 4096,
//                                                .out_stride = 28672});
//   for (const cublaslt::Algorithm& algorithm : matmul.FindAlgorithms(SumOrder::kOneChain, 4)) ...
//
// The library is the machine's own, loaded when it is needed, so neither build nor service requires it.
// Errors: each Multiply returns the status of the first failure, also of one in the constructor.
// Threads: the device's caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/cublaslt.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// One of the library's objects, freed with this.
using LibraryObject = std::unique_ptr<void, int (*)(void*)>;

// The library on a device, with a workspace that one product at a time uses: products of the device's stream do not
// overlap.
class Library {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  Library(const cublaslt::Library& functions, LibraryObject handle, Device& device)
      : functions_(functions),
        handle_(std::move(handle)),
        workspace_(device.Allocate(kWorkspaceBytes)),
        stream_(device.stream()) {}

  const cublaslt::Library& functions() const { return functions_; }
  void* handle() const { return handle_.get(); }
  void* workspace() const { return workspace_.get(); }
  cudaStream_t stream() const { return stream_; }

 private:
  cublaslt::Library functions_;
  LibraryObject handle_;
  Buffer workspace_;
  cudaStream_t stream_;
};

struct OpenedLibrary {
  std::unique_ptr<Library> library;  // null on an error
  std::string error;                 // says the failed call, and the words of the library or the loader
};

OpenedLibrary OpenLibrary(const std::string& file_name, Device& device);

struct LibraryShape {
  int64_t num_rows = 0;     // T
  int64_t num_outputs = 0;  // N
  int64_t num_inputs = 0;   // K
  int64_t out_stride = 0;   // elements from one row of out to the next
};

struct LibraryOperands {
  const void* x = nullptr;            // [T, K] bf16
  const void* weight_rows = nullptr;  // [N, K] bf16
  float* out = nullptr;               // [T, N], out_stride apart
  OutputMode mode = OutputMode::kStore;
};

// The order of an algorithm's sums.
enum class SumOrder {
  kAny,
  kOneChain,  // one block computes each sum; no parts over the inputs are added later
};

class LibraryMatMul {
 public:
  // The library outlives it.
  LibraryMatMul(const Library& library, const LibraryShape& shape);

  const LibraryShape& shape() const { return shape_; }

  // The algorithms that the library knows, by the speed that it expects, fastest first.
  std::vector<cublaslt::Algorithm> FindAlgorithms(SumOrder order, int max_algorithms) const;

  // Enqueues the product. Pointers are aligned to cublaslt::kPointerAlignment. Returns the library's status; unless it
  // is cublaslt::kSuccess, nothing is enqueued.
  int Multiply(const LibraryOperands& operands, const cublaslt::Algorithm& algorithm) const;

 private:
  const Library* library_;
  LibraryShape shape_;
  int status_ = cublaslt::kSuccess;  // of the constructor's calls
  LibraryObject product_, a_, b_, out_;
};

}  // namespace foretoken::kernels::cuda
