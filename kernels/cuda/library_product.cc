// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/library_product.h"

#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

// [T, K] x and [N, K] weight, on the device in rows and as our kernels have it.
struct Operands {
  Buffer x;
  Buffer weight_rows;
  std::unique_ptr<CudaWeight> weight;
};

std::vector<uint16_t> RandomBf16(int64_t count, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = Bf16FromFloat(static_cast<float>(random() % 65536) * 0x1p-15f - 1);
  return values;
}

Operands MakeOperands(const ProductShape& shape, Device& device) {
  const auto x = RandomBf16(shape.num_rows * shape.num_inputs, 1);
  const auto weight = RandomBf16(shape.num_outputs * shape.num_inputs, 2);
  const auto upload = [&](const std::vector<uint16_t>& values) {
    Buffer buffer = device.Allocate(values.size() * sizeof(uint16_t));
    device.Copy(buffer.get(), values.data(), values.size() * sizeof(uint16_t), CopyKind::kToDevice);
    device.Synchronize();
    return buffer;
  };
  const ConstTensorView part{weight.data(), DType::kBF16, Shape(shape.num_outputs, shape.num_inputs)};
  return {.x = upload(x),
          .weight_rows = upload(weight),
          .weight = PrepareWeight({.parts = {&part, 1}, .release = nullptr}, device)};
}

// The library's product: out [T, N] f32 in rows is, column-major, [N, T] = weight^T x, where the rows of both are
// columns.
class LibraryMatMul {
 public:
  LibraryMatMul(const cublaslt::Library& library, const ProductShape& shape, Device& device)
      : library_(library), device_(device), workspace_(device.Allocate(kWorkspaceBytes)) {
    const auto num_rows = static_cast<uint64_t>(shape.num_rows), num_outputs = static_cast<uint64_t>(shape.num_outputs),
               num_inputs = static_cast<uint64_t>(shape.num_inputs);
    Keep(handle_, library.create(&handle_), library.destroy);
    Keep(product_, library.create_product(&product_, cublaslt::kComputeF32, cublaslt::kTypeF32),
         library.destroy_product);
    Keep(a_, library.create_layout(&a_, cublaslt::kTypeBf16, num_inputs, num_outputs, shape.num_inputs),
         library.destroy_layout);
    Keep(b_, library.create_layout(&b_, cublaslt::kTypeBf16, num_inputs, num_rows, shape.num_inputs),
         library.destroy_layout);
    Keep(out_, library.create_layout(&out_, cublaslt::kTypeF32, num_outputs, num_rows, shape.num_outputs),
         library.destroy_layout);
    Keep(preference_, library.create_preference(&preference_), library.destroy_preference);
    const int32_t transposed = cublaslt::kTransposed;
    Try(library.set_product_attribute(product_, cublaslt::kTransposeA, &transposed, sizeof(transposed)));
    Try(library.set_preference_attribute(preference_, cublaslt::kMaxWorkspaceBytes, &kWorkspaceBytes,
                                         sizeof(kWorkspaceBytes)));
    int num_results = 0;
    Try(library.rank_algorithms(handle_, product_, a_, b_, out_, out_, preference_, 1, &best_, &num_results));
    Try(num_results == 1 ? best_.status : kNoAlgorithm);
  }

  void Multiply(const Operands& operands, float* out) {
    if (status_ != cublaslt::kSuccess) return;
    const float one = 1, zero = 0;
    Try(library_.multiply(handle_, product_, &one, operands.weight_rows.get(), a_, operands.x.get(), b_, &zero, out,
                          out_, out, out_, best_.algorithm, workspace_.get(), kWorkspaceBytes, device_.stream()));
  }

  // The first that was not success; a -1 of ours: the library knows no algorithm.
  int status() const { return status_; }

 private:
  static constexpr int kNoAlgorithm = -1;

  void Try(int status) {
    if (status_ == cublaslt::kSuccess) status_ = status;
  }
  void Keep(void*& object, int status, int (*destroy)(void*)) {
    Try(status);
    if (status == cublaslt::kSuccess) objects_.emplace_back(object, destroy);
  }

  const cublaslt::Library& library_;
  Device& device_;
  Buffer workspace_;
  int status_ = cublaslt::kSuccess;
  void *handle_ = nullptr, *product_ = nullptr, *a_ = nullptr, *b_ = nullptr, *out_ = nullptr, *preference_ = nullptr;
  cublaslt::HeuristicResult best_{};
  std::vector<Buffer> objects_;  // which destroy themselves
};

double SecondsOf(const std::function<void()>& enqueue, int num_repetitions, Device& device) {
  enqueue();  // the first brings memory and code in
  device.Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < num_repetitions; ++i) enqueue();
  device.Synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / num_repetitions;
}

bool HaveEqualBits(const Buffer& a, const Buffer& b, size_t num_bytes, Device& device) {
  std::vector<char> a_bytes(num_bytes), b_bytes(num_bytes);
  device.Copy(a_bytes.data(), a.get(), num_bytes, CopyKind::kToHost);
  device.Copy(b_bytes.data(), b.get(), num_bytes, CopyKind::kToHost);
  device.Synchronize();
  return a_bytes == b_bytes;
}

}  // namespace

MeasuredProducts MeasureProducts(const ProductShape& shape, const MeasureOptions& options, Device& device) {
  FT_CHECK(shape.num_rows > 0 && shape.num_outputs > 0 && shape.num_inputs % 8 == 0 && options.num_repetitions > 0);
  const cublaslt::Loaded loaded = cublaslt::Load(options.library);
  if (!loaded.library) return {.times = {}, .error = loaded.error};
  const Operands operands = MakeOperands(shape, device);
  const size_t out_bytes = shape.num_rows * shape.num_outputs * sizeof(float);
  const Buffer our_out = device.Allocate(out_bytes), library_out = device.Allocate(out_bytes);
  LibraryMatMul library(*loaded.library, shape, device);
  const MatMulArgs args{.x = {operands.x.get(), DType::kBF16, Shape(shape.num_rows, shape.num_inputs)},
                        .weight = operands.weight.get(),
                        .out = {our_out.get(), DType::kF32, Shape(shape.num_rows, shape.num_outputs)}};
  ProductTimes times;
  times.our_seconds = SecondsOf([&] { MatMul(args, device.stream()); }, options.num_repetitions, device);
  times.library_seconds = SecondsOf([&] { library.Multiply(operands, static_cast<float*>(library_out.get())); },
                                    options.num_repetitions, device);
  if (library.status() != cublaslt::kSuccess) {
    return {.times = {}, .error = "cuBLASLt: status " + std::to_string(library.status())};
  }
  times.bits_are_equal = HaveEqualBits(our_out, library_out, out_bytes, device);
  return {.times = times, .error = ""};
}

}  // namespace foretoken::kernels::cuda
