// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt's interface that products need: its functions, found in the machine's library by their names.
// They are declared here, because NVIDIA's package with the header also has the libraries, hundreds of megabytes.
// Source: NVIDIA, "cuBLAS", chapter "Using the cuBLASLt API". The numbers are part of its binary interface and come
// from version 13's cublasLt.h.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace foretoken::kernels::cuda::cublaslt {

inline constexpr int kSuccess = 0;                // CUBLAS_STATUS_SUCCESS
inline constexpr int kComputeF32 = 68;            // CUBLAS_COMPUTE_32F
inline constexpr int kTypeF32 = 0;                // CUDA_R_32F
inline constexpr int kTypeBf16 = 14;              // CUDA_R_16BF
inline constexpr int kTransposed = 1;             // CUBLAS_OP_T
inline constexpr int kTransposeA = 3;             // CUBLASLT_MATMUL_DESC_TRANSA, int32
inline constexpr int kMaxWorkspaceBytes = 1;      // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64
inline constexpr int kReductionSchemeMask = 3;    // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32
inline constexpr uint32_t kNoReduction = 0;       // CUBLASLT_REDUCTION_SCHEME_NONE, the only scheme without a bit in a
                                                  // mask
inline constexpr int kAlgorithmNumSplits = 2;     // CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32
inline constexpr size_t kPointerAlignment = 256;  // the default of CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*_BYTES

// cublasLtMatmulAlgo_t
struct Algorithm {
  uint64_t words[8];
};

// cublasLtMatmulHeuristicResult_t
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float num_waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

// Matrices are column-major. A status of 0 is success.
struct Library {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*create_product)(void** product, int compute_type, int scale_type);
  int (*set_product_attribute)(void* product, int attribute, const void* value, size_t num_bytes);
  int (*destroy_product)(void* product);
  int (*create_layout)(void** layout, int type, uint64_t num_rows, uint64_t num_columns, int64_t column_stride);
  int (*destroy_layout)(void* layout);
  int (*create_preference)(void** preference);
  int (*set_preference_attribute)(void* preference, int attribute, const void* value, size_t num_bytes);
  int (*destroy_preference)(void* preference);
  int (*rank_algorithms)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                         int max_results, HeuristicResult* results, int* num_results);
  int (*get_algorithm_attribute)(const Algorithm* algorithm, int attribute, void* value, size_t num_bytes,
                                 size_t* num_written);
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                  void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                  const Algorithm* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream);
};

struct Loaded {
  std::optional<Library> library;
  std::string error;  // if there is no library: its name, and the loader's words
};

// `file_name` in dlopen's form. The library stays loaded until the process ends.
Loaded Load(const std::string& file_name);

}  // namespace foretoken::kernels::cuda::cublaslt
