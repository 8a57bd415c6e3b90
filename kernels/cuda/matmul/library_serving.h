// SPDX-License-Identifier: Apache-2.0
// Matrix products by our kernels or, where it moves no bit and takes less time, by cuBLASLt.
//
//   LibraryServing products(device, {});
//   const std::string found = products.Tune(uses);  // "cuBLASLt: 28672 x 4096: 512 rows slower, ..."
//   products.MatMul(args);                          // matmul.h's, bit for bit
//
// The library chooses a kernel, and with it an order of sums, by the row count. So it is asked for row counts that are
// powers of two and nothing else, and of each every row has been compared with ours on random data when the service
// starts (library_check.h). A product of other row counts is cut: 3000 rows are 2048 and, where these two serve, 512 by
// the library, the rest by our kernels. Timing chooses only between equal bits.
//
// What can be served is a bf16 weight of one split, without bias. The library needs it in rows. These are unpacked a
// few MiB at a time, so that they stay in the second-level cache, and multiplied into their columns of the output.
//
// Not for passes that are recorded: the library may do what a capture forbids. They have fewer rows than min_rows.
// Errors: a product that the library refuses after it was tried ends the process, as CUDA's errors do.
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

// With fewer rows, unpacking a weight would take about as long as multiplying it.
inline constexpr int64_t kMinLibraryRows = 512;
// What the second-level cache of every GPU that we serve holds beside the rows.
inline constexpr size_t kLibraryRunBytes = size_t{16} << 20;

struct LibraryOptions {
  std::string file = "libcublasLt.so.13";  // as dlopen takes it
  int64_t min_rows = kMinLibraryRows;      // the fewest that the library is asked for; a power of two, 16 or more
  size_t run_bytes = kLibraryRunBytes;     // of a weight, unpacked at a time
  // Seconds that what `enqueue` enqueues takes; unset: by the wall's clock.
  std::function<double(const std::function<void()>& enqueue)> seconds_of;
};

class LibraryServing {
 public:
  // Of the device's memory, after Tune.
  static constexpr size_t kMaxBytes = kLibraryRunBytes + Library::kWorkspaceBytes;

  LibraryServing(Device& device, LibraryOptions options);
  LibraryServing(const LibraryServing&) = delete;
  LibraryServing& operator=(const LibraryServing&) = delete;

  // Finds the row counts that the library serves from now on, and says so in a line; none where it never could. Takes,
  // while it tries, about what the largest of these products reads and writes.
  std::string Tune(std::span<const ProductUse> uses);

  void MatMul(const MatMulArgs& args);

  // Whether a product of so many rows is the library's, at least in part.
  bool Serves(const CudaWeight& weight, int64_t num_rows) const;

 private:
  // Some of a weight's outputs, as many as are unpacked at a time, for a row count.
  struct Run {
    LibraryMatMul matmul;
    cublaslt::Algorithm algorithm;
  };
  struct Bucket {
    int64_t num_rows = 0;
    std::vector<Run> runs;  // what all outputs are made of: one with run_outputs, and one with what is left, if any is
  };
  // All weights of a shape.
  struct TunedShape {
    int64_t num_outputs = 0;  // N
    int64_t num_inputs = 0;   // K
    int64_t run_outputs = 0;
    std::vector<Bucket> buckets;  // that are served, the one of most rows first
  };
  // Rows of a product that a bucket computes, as many as it has.
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
  std::unique_ptr<Library> library_;  // null: it serves nothing
  Buffer weight_rows_;                // a run's
  std::vector<TunedShape> shapes_;    // of which something is served
};

}  // namespace foretoken::kernels::cuda
