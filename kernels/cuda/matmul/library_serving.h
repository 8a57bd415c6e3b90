// SPDX-License-Identifier: Apache-2.0
// Matrix products by our kernels or, where it moves no bit and takes less time, by cuBLASLt.
//
//   LibraryServing products(device, {});
//   const std::string found = products.Tune(uses);  // "cuBLASLt: 28672 x 4096: 512 rows slower, ..."
//   products.MatMul(args);                          // matmul.h's, bit for bit
//
// The library chooses a kernel, and with it an order of sums, by the row count. So it is only asked for row counts that
// are powers of two. For each of them every row has been compared with ours on random data when the service started
// (library_check.h). A product of another row count is cut. For example, 3000 rows are 2048 and 512 by the library, if
// it serves these two, and the rest by our kernels. Timing chooses only between equal bits.
//
// The library can serve bf16 weights of one split, without bias. It needs the weight in rows. The weight is unpacked a
// few MiB at a time, so that the rows stay in the second-level cache, and multiplied into their columns of the output.
//
// Recorded passes do not use the library, because it may do things that a capture forbids. They have fewer rows than
// min_rows.
// Errors: if the library refuses a product after its trial, the process ends, as for CUDA's errors.
// Threads: the device's caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/library_check.h"
#include "kernels/cuda/matmul/library_matmul.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {

// With fewer rows, unpacking a weight takes about as long as multiplying it.
inline constexpr int64_t kMinLibraryRows = 512;
// The second-level cache of every GPU that we serve holds this much beside the rows.
inline constexpr size_t kLibraryRunBytes = size_t{16} << 20;

struct LibraryOptions {
  std::string file = "libcublasLt.so.13";  // in dlopen's form
  int64_t min_rows = kMinLibraryRows;      // the least row count for the library; a power of two, 16 or more
  size_t run_bytes = kLibraryRunBytes;     // bytes of a weight, unpacked at a time
  // Returns the seconds that the work enqueued by `enqueue` takes; unset: measures wall time.
  std::function<double(const std::function<void()>& enqueue)> seconds_of;
};

class LibraryServing {
 public:
  // The device memory that this takes after Tune.
  static constexpr size_t kMaxBytes = kLibraryRunBytes + Library::kWorkspaceBytes;

  LibraryServing(Device& device, LibraryOptions options);
  LibraryServing(const LibraryServing&) = delete;
  LibraryServing& operator=(const LibraryServing&) = delete;

  // Finds the row counts that the library serves from now on, and returns a line about them; empty: it could serve none
  // of these products. While it tries, it takes about as much memory as the largest of these products reads and writes.
  std::string Tune(std::span<const ProductUse> uses);

  void MatMul(const MatMulArgs& args);

  // True if the library computes a product of this many rows, at least in part.
  bool Serves(const CudaWeight& weight, int64_t num_rows) const;

 private:
  // A range of a weight's outputs, as many as are unpacked at a time, for one row count.
  struct Run {
    LibraryMatMul matmul;
    cublaslt::Algorithm algorithm;
  };
  struct Bucket {
    int64_t num_rows = 0;
    std::vector<Run> runs;  // cover all outputs: one for run_outputs at a time, and one for a remainder
  };
  // All weights of a shape.
  struct TunedShape {
    int64_t num_outputs = 0;  // N
    int64_t num_inputs = 0;   // K
    int64_t run_outputs = 0;
    std::vector<Bucket> buckets;  // buckets that the library serves, largest row count first
  };
  // Rows of a product that one bucket computes.
  struct RowBlock {
    int64_t first_row = 0;
    const Bucket* bucket = nullptr;
  };

  int64_t RunOutputs(const Weight& weight) const;
  bool IsServable(const CudaWeight& weight) const;
  std::vector<ProductUse> ServableShapes(std::span<const ProductUse> uses) const;
  std::string TuneShape(const ProductUse& use);
  std::string TryBucket(const CudaWeight& weight, const TrialMemory& memory, std::span<LibraryCheck> checks,
                        TunedShape& shape, int64_t num_rows);
  const TunedShape* FindShape(const Weight& weight) const;
  std::vector<RowBlock> CutIntoBlocks(const MatMulArgs& args) const;
  void Enqueue(const MatMulArgs& args, const TunedShape& shape, std::span<const RowBlock> blocks);

  Device& device_;
  LibraryOptions options_;
  std::unique_ptr<Library> library_;  // null: the library serves nothing
  Buffer weight_rows_;                // the rows of one run
  std::vector<TunedShape> shapes_;    // shapes for which the library serves something
};

}  // namespace foretoken::kernels::cuda
