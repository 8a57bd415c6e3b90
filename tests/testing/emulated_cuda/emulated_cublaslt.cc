// SPDX-License-Identifier: Apache-2.0
// A cuBLASLt for the emulated GPU: a library with the functions that kernels/cuda/matmul/cublaslt.h looks up. By
// default it has one algorithm: each element is a chain over the inputs, in order. Tests set others
// (emulated_cublaslt.h). An invalid argument ends the process; the real library would return a status or wrong results.
#include "tests/testing/emulated_cuda/emulated_cublaslt.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/check.h"
#include "kernels/dtype.h"

namespace {

using foretoken::testing::LibraryAlgorithm;

constexpr int kSuccess = 0;
constexpr int kNotSupported = 15;
constexpr uint32_t kAllReductions = 7;

struct Product {
  bool transposes_a = false;
};

struct Layout {
  int type = 0;
  uint64_t num_rows = 0, num_columns = 0;
  int64_t column_stride = 0;
};

struct Preference {
  uint64_t max_workspace_bytes = 0;
  uint32_t reduction_schemes = kAllReductions;
};

struct Algorithm {
  uint64_t idx;  // index of an algorithm
  uint64_t unused[7];
};

struct Result {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float num_waves;
  int reserved[4];
};

std::vector<LibraryAlgorithm> algorithms(1);

template <typename T>
int Make(void** object, const T& value) {
  *object = new T(value);
  return kSuccess;
}

template <typename T>
int Delete(void* object) {
  delete static_cast<T*>(object);
  return kSuccess;
}

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 256 == 0; }

struct Operands {
  const uint16_t* a;
  const uint16_t* b;
  Layout a_is, b_is, d_is;
  float beta;
  float* d;
};

float SumOf(const Operands& operands, uint64_t row, uint64_t column, const LibraryAlgorithm& algorithm) {
  const uint64_t num_inputs = operands.a_is.num_rows;
  const bool is_reversed = algorithm.wrong_rows == static_cast<int64_t>(operands.d_is.num_columns) ||
                           algorithm.wrong_outputs == static_cast<int64_t>(operands.d_is.num_rows);
  const auto product = [&](uint64_t i) {
    const uint64_t k = is_reversed ? num_inputs - 1 - i : i;
    return foretoken::kernels::FloatFromBf16(operands.a[row * operands.a_is.column_stride + k]) *
           foretoken::kernels::FloatFromBf16(operands.b[column * operands.b_is.column_stride + k]);
  };
  float sum = 0;
  const float begin =
      algorithm.begins_with_out && operands.beta == 1 ? operands.d[column * operands.d_is.column_stride + row] : 0.0f;
  for (int32_t split = 0; split < algorithm.num_splits; ++split) {
    float part = begin;
    const uint64_t end = num_inputs * (split + 1) / algorithm.num_splits;
    for (uint64_t i = num_inputs * split / algorithm.num_splits; i < end; ++i) part += product(i);
    sum = split == 0 ? part : sum + part;
  }
  if (algorithm.flushes_subnormals && std::fpclassify(sum) == FP_SUBNORMAL) return 0;
  if (row != 0 || algorithm.wrong_row != static_cast<int64_t>(column)) return sum;
  return std::nextafter(sum, std::numeric_limits<float>::infinity());
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
extern "C" {

void EmulatedCublasLtPlay(const LibraryAlgorithm* played, size_t count) { algorithms.assign(played, played + count); }

int cublasLtCreate(void** handle) { return Make(handle, 0); }
int cublasLtDestroy(void* handle) { return Delete<int>(handle); }

int cublasLtMatmulDescCreate(void** product, int compute_type, int scale_type) {
  FT_CHECK(compute_type == 68 && scale_type == 0);
  return Make(product, Product{});
}
int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t num_bytes) {
  FT_CHECK(attribute == 3 && num_bytes == sizeof(int32_t));
  static_cast<Product*>(product)->transposes_a = *static_cast<const int32_t*>(value) == 1;
  return kSuccess;
}
int cublasLtMatmulDescDestroy(void* product) { return Delete<Product>(product); }

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t num_rows, uint64_t num_columns, int64_t stride) {
  FT_CHECK(stride >= static_cast<int64_t>(num_rows));
  return Make(layout, Layout{type, num_rows, num_columns, stride});
}
int cublasLtMatrixLayoutDestroy(void* layout) { return Delete<Layout>(layout); }

int cublasLtMatmulPreferenceCreate(void** preference) { return Make(preference, Preference{}); }
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t num_bytes) {
  auto& wanted = *static_cast<Preference*>(preference);
  if (attribute == 3) {
    FT_CHECK(num_bytes == sizeof(uint32_t));
    wanted.reduction_schemes = *static_cast<const uint32_t*>(value);
    return kSuccess;
  }
  FT_CHECK(attribute == 1 && num_bytes == sizeof(uint64_t));
  wanted.max_workspace_bytes = *static_cast<const uint64_t*>(value);
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(void* preference) { return Delete<Preference>(preference); }

// Ignores the preference's schemes and also returns algorithms with splits, because the caller must check for splits
// itself.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference, int max_results,
                                   Result* results, int* num_results) {
  FT_CHECK(max_results > 0);
  FT_CHECK(static_cast<Preference*>(preference)->reduction_schemes <= kAllReductions);
  if (algorithms.empty()) return kNotSupported;
  *num_results = 0;
  for (uint64_t i = 0; i < algorithms.size() && *num_results < max_results; ++i) {
    results[(*num_results)++] = {.algorithm = {.idx = i, .unused = {}},
                                 .workspace_bytes = 0,
                                 .status = kSuccess,
                                 .num_waves = 1,
                                 .reserved = {}};
  }
  return kSuccess;
}

int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value, size_t num_bytes,
                                         size_t* num_written) {
  FT_CHECK(attribute == 2 && num_bytes == sizeof(int32_t));
  *static_cast<int32_t*>(value) = algorithms.at(algorithm->idx).num_splits;
  *num_written = num_bytes;
  return kSuccess;
}

int cublasLtMatmul(void*, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const Algorithm* algorithm, void* workspace, size_t, cudaStream_t stream) {
  const LibraryAlgorithm played = algorithms.at(algorithm->idx);
  if (played.status != kSuccess) return played.status;
  const Operands operands{.a = static_cast<const uint16_t*>(a),
                          .b = static_cast<const uint16_t*>(b),
                          .a_is = *static_cast<Layout*>(a_layout),
                          .b_is = *static_cast<Layout*>(b_layout),
                          .d_is = *static_cast<Layout*>(d_layout),
                          .beta = *static_cast<const float*>(beta),
                          .d = static_cast<float*>(d)};
  const Layout &a_is = operands.a_is, &b_is = operands.b_is, &d_is = operands.d_is;
  FT_CHECK(static_cast<Product*>(product)->transposes_a && c == d && c_layout == d_layout);
  FT_CHECK(*static_cast<const float*>(alpha) == 1 && (operands.beta == 0 || operands.beta == 1));
  FT_CHECK(a_is.type == 14 && b_is.type == 14 && d_is.type == 0 && a_is.num_rows == b_is.num_rows);
  FT_CHECK(d_is.num_rows == a_is.num_columns && d_is.num_columns == b_is.num_columns);
  FT_CHECK(IsAligned(a) && IsAligned(b) && IsAligned(d) && IsAligned(workspace));
  foretoken::testing::Enqueue(stream, [operands, played] {
    for (uint64_t column = 0; column < operands.d_is.num_columns; ++column) {
      for (uint64_t row = 0; row < operands.d_is.num_rows; ++row) {
        float& out = operands.d[column * operands.d_is.column_stride + row];
        const float sum = SumOf(operands, row, column, played);
        out = operands.beta == 0 || played.begins_with_out ? sum : out + sum;
      }
    }
  });
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
