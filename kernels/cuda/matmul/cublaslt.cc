// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/cublaslt.h"

#include <dlfcn.h>

namespace foretoken::kernels::cuda::cublaslt {
namespace {

// Looks functions up by name, and remembers the first that is missing.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}

  template <typename Function>
  void Find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

Loaded Load(const std::string& file_name) {
  void* handle = dlopen(file_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {.library = {}, .error = std::string("cuBLASLt: ") + dlerror()};
  Functions functions(handle);
  Library library{};
  functions.Find(library.create, "cublasLtCreate");
  functions.Find(library.destroy, "cublasLtDestroy");
  functions.Find(library.create_product, "cublasLtMatmulDescCreate");
  functions.Find(library.set_product_attribute, "cublasLtMatmulDescSetAttribute");
  functions.Find(library.destroy_product, "cublasLtMatmulDescDestroy");
  functions.Find(library.create_layout, "cublasLtMatrixLayoutCreate");
  functions.Find(library.destroy_layout, "cublasLtMatrixLayoutDestroy");
  functions.Find(library.create_preference, "cublasLtMatmulPreferenceCreate");
  functions.Find(library.set_preference_attribute, "cublasLtMatmulPreferenceSetAttribute");
  functions.Find(library.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  functions.Find(library.rank_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  functions.Find(library.get_algorithm_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
  functions.Find(library.multiply, "cublasLtMatmul");
  if (functions.missing().empty()) return {.library = library, .error = ""};
  return {.library = {}, .error = "cuBLASLt: " + file_name + " has no " + functions.missing()};
}

}  // namespace foretoken::kernels::cuda::cublaslt
