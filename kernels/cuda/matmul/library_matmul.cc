// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/library_matmul.h"

#include <utility>

namespace foretoken::kernels::cuda {
namespace {

// True if the library itself describes the algorithm so: 0 means no split, and so does 1. An algorithm without an
// answer counts as split.
bool IsOneChain(const cublaslt::Library& functions, const cublaslt::Algorithm& algorithm) {
  int32_t num_splits = 0;
  size_t num_written = 0;
  const int status = functions.get_algorithm_attribute(&algorithm, cublaslt::kAlgorithmNumSplits, &num_splits,
                                                       sizeof(num_splits), &num_written);
  return status == cublaslt::kSuccess && (num_splits == 0 || num_splits == 1);
}

}  // namespace

OpenedLibrary OpenLibrary(const std::string& file_name, Device& device) {
  const cublaslt::Loaded loaded = cublaslt::Load(file_name);
  if (!loaded.library) return {.library = nullptr, .error = loaded.error};
  void* handle = nullptr;
  if (const int status = loaded.library->create(&handle); status != cublaslt::kSuccess) {
    return {.library = nullptr, .error = "cuBLASLt: cublasLtCreate: status " + std::to_string(status)};
  }
  return {.library = std::make_unique<Library>(*loaded.library, LibraryObject(handle, loaded.library->destroy), device),
          .error = ""};
}

// The library is column-major, so the rows of all three matrices are its columns: out [N, T] = weight^T x.
LibraryMatMul::LibraryMatMul(const Library& library, const LibraryShape& shape)
    : library_(&library),
      shape_(shape),
      product_(nullptr, library.functions().destroy_product),
      a_(nullptr, library.functions().destroy_layout),
      b_(nullptr, library.functions().destroy_layout),
      out_(nullptr, library.functions().destroy_layout) {
  const cublaslt::Library& functions = library.functions();
  const auto num_rows = static_cast<uint64_t>(shape.num_rows), num_outputs = static_cast<uint64_t>(shape.num_outputs),
             num_inputs = static_cast<uint64_t>(shape.num_inputs);
  const auto keep = [this](LibraryObject& object, const auto& make) {
    if (status_ != cublaslt::kSuccess) return;
    void* made = nullptr;
    status_ = make(&made);
    if (status_ == cublaslt::kSuccess) object.reset(made);
  };
  keep(product_, [&](void** to) { return functions.create_product(to, cublaslt::kComputeF32, cublaslt::kTypeF32); });
  keep(a_, [&](void** to) {
    return functions.create_layout(to, cublaslt::kTypeBf16, num_inputs, num_outputs, shape.num_inputs);
  });
  keep(b_, [&](void** to) {
    return functions.create_layout(to, cublaslt::kTypeBf16, num_inputs, num_rows, shape.num_inputs);
  });
  keep(out_, [&](void** to) {
    return functions.create_layout(to, cublaslt::kTypeF32, num_outputs, num_rows, shape.out_stride);
  });
  if (status_ != cublaslt::kSuccess) return;
  const int32_t transposed = cublaslt::kTransposed;
  status_ = functions.set_product_attribute(product_.get(), cublaslt::kTransposeA, &transposed, sizeof(transposed));
}

std::vector<cublaslt::Algorithm> LibraryMatMul::FindAlgorithms(SumOrder order, int max_algorithms) const {
  const cublaslt::Library& functions = library_->functions();
  void* made = nullptr;
  if (status_ != cublaslt::kSuccess || functions.create_preference(&made) != cublaslt::kSuccess) return {};
  const LibraryObject preference(made, functions.destroy_preference);
  const uint64_t workspace_bytes = Library::kWorkspaceBytes;
  int status = functions.set_preference_attribute(preference.get(), cublaslt::kMaxWorkspaceBytes, &workspace_bytes,
                                                  sizeof(workspace_bytes));
  if (order == SumOrder::kOneChain && status == cublaslt::kSuccess) {
    const uint32_t schemes = cublaslt::kNoReduction;
    status =
        functions.set_preference_attribute(preference.get(), cublaslt::kReductionSchemeMask, &schemes, sizeof(schemes));
  }
  if (status != cublaslt::kSuccess) return {};
  std::vector<cublaslt::HeuristicResult> results(max_algorithms);
  int num_results = 0;
  status = functions.rank_algorithms(library_->handle(), product_.get(), a_.get(), b_.get(), out_.get(), out_.get(),
                                     preference.get(), max_algorithms, results.data(), &num_results);
  if (status != cublaslt::kSuccess) return {};
  results.resize(num_results);
  std::vector<cublaslt::Algorithm> algorithms;
  for (const cublaslt::HeuristicResult& result : results) {
    if (result.status != cublaslt::kSuccess) continue;
    if (order == SumOrder::kOneChain && !IsOneChain(functions, result.algorithm)) continue;
    algorithms.push_back(result.algorithm);
  }
  return algorithms;
}

int LibraryMatMul::Multiply(const LibraryOperands& operands, const cublaslt::Algorithm& algorithm) const {
  if (status_ != cublaslt::kSuccess) return status_;
  const float one = 1, beta = operands.mode == OutputMode::kAdd ? 1 : 0;
  return library_->functions().multiply(library_->handle(), product_.get(), &one, operands.weight_rows, a_.get(),
                                        operands.x, b_.get(), &beta, operands.out, out_.get(), operands.out, out_.get(),
                                        &algorithm, library_->workspace(), Library::kWorkspaceBytes,
                                        library_->stream());
}

}  // namespace foretoken::kernels::cuda
