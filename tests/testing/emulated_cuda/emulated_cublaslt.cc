// SPDX-License-Identifier: Apache-2.0
// A cuBLASLt for the emulated GPU: the functions that kernels/cuda/cublaslt.h looks for, in a library of their own. A
// product is one chain per element over the inputs, in order. What cannot be meant ends the process: the real library
// would answer with a status, or with nonsense.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/check.h"
#include "kernels/dtype.h"

namespace {

constexpr int kSuccess = 0;

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
};

struct Result {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float num_waves;
  int reserved[4];
};

constexpr uint64_t kOnlyAlgorithm = 7;

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

float At(const void* matrix, const Layout& layout, uint64_t row, uint64_t column) {
  return foretoken::kernels::FloatFromBf16(static_cast<const uint16_t*>(matrix)[column * layout.column_stride + row]);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
extern "C" {

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
  return Make(layout, Layout{type, num_rows, num_columns, stride});
}
int cublasLtMatrixLayoutDestroy(void* layout) { return Delete<Layout>(layout); }

int cublasLtMatmulPreferenceCreate(void** preference) { return Make(preference, Preference{}); }
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t num_bytes) {
  FT_CHECK(attribute == 1 && num_bytes == sizeof(uint64_t));
  static_cast<Preference*>(preference)->max_workspace_bytes = *static_cast<const uint64_t*>(value);
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(void* preference) { return Delete<Preference>(preference); }

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int max_results, Result* results,
                                   int* num_results) {
  FT_CHECK(max_results > 0);
  results[0] = {
      .algorithm = {kOnlyAlgorithm}, .workspace_bytes = 0, .status = kSuccess, .num_waves = 1, .reserved = {}};
  *num_results = 1;
  return kSuccess;
}

int cublasLtMatmul(void*, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void*, void*, void* d, void* d_layout, const void* algorithm,
                   void*, size_t, cudaStream_t stream) {
  const Layout a_is = *static_cast<Layout*>(a_layout), b_is = *static_cast<Layout*>(b_layout);
  const Layout d_is = *static_cast<Layout*>(d_layout);
  FT_CHECK(static_cast<Product*>(product)->transposes_a && *static_cast<const uint64_t*>(algorithm) == kOnlyAlgorithm);
  FT_CHECK(*static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0);
  FT_CHECK(a_is.type == 14 && b_is.type == 14 && d_is.type == 0 && a_is.num_rows == b_is.num_rows);
  FT_CHECK(d_is.num_rows == a_is.num_columns && d_is.num_columns == b_is.num_columns);
  foretoken::testing::Enqueue(stream, [=] {
    for (uint64_t column = 0; column < d_is.num_columns; ++column) {
      for (uint64_t row = 0; row < d_is.num_rows; ++row) {
        float sum = 0;
        for (uint64_t k = 0; k < a_is.num_rows; ++k) sum += At(a, a_is, k, row) * At(b, b_is, k, column);
        static_cast<float*>(d)[column * d_is.column_stride + row] = sum;
      }
    }
  });
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
