// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/library_product.h"

#include <limits>
#include <random>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/base/enqueued_seconds.h"
#include "kernels/cuda/matmul/trial_data.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kMaxAlgorithms = 4;

std::vector<uint16_t> RandomBf16(int64_t count, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = Bf16FromFloat(static_cast<float>(random() % 65536) * 0x1p-15f - 1);
  return values;
}

Buffer Uploaded(const std::vector<uint16_t>& values, Device& device) {
  Buffer buffer = device.Allocate(values.size() * sizeof(uint16_t));
  device.Copy(buffer.get(), values.data(), values.size() * sizeof(uint16_t), CopyKind::kToDevice);
  device.Synchronize();
  return buffer;
}

}  // namespace

MeasuredProduct::MeasuredProduct(const ProductShape& shape, const MeasureOptions& options, Device& device)
    : shape_(shape), options_(options), device_(device) {
  FT_CHECK(shape.num_rows > 0 && shape.num_outputs > 0 && shape.num_inputs % 8 == 0 && options.num_repetitions > 0);
  OpenedLibrary opened = OpenLibrary(options.library.file, device);
  if (opened.library == nullptr) {
    error_ = std::move(opened.error);
    return;
  }
  library_ = std::move(opened.library);
  const auto weight = RandomBf16(shape.num_outputs * shape.num_inputs, 2);
  const ConstTensorView part{weight.data(), DType::kBF16, Shape(shape.num_outputs, shape.num_inputs)};
  weight_ = PrepareWeight({.parts = {&part, 1}, .release = nullptr}, device);
  weight_rows_ = Uploaded(weight, device);
  x_ = Uploaded(RandomBf16(shape.num_rows * shape.num_inputs, 1), device);
  matmul_ = std::make_unique<LibraryMatMul>(*library_, LibraryShape{.num_rows = shape.num_rows,
                                                                    .num_outputs = shape.num_outputs,
                                                                    .num_inputs = shape.num_inputs,
                                                                    .out_stride = shape.num_outputs});
  algorithms_ = matmul_->FindAlgorithms(SumOrder::kAny, kMaxAlgorithms);
  if (algorithms_.empty()) error_ = "cuBLASLt: no algorithm for this product";
  serving_ = std::make_unique<LibraryServing>(device, options.library);
  const ProductUse use = {.weight = weight_.get(), .max_rows = shape.num_rows};
  serving_->Tune({&use, 1});
  const size_t out_bytes = shape.num_rows * shape.num_outputs * sizeof(float);
  served_out_ = device.Allocate(out_bytes);
  library_out_ = device.Allocate(out_bytes);
}

ProductTimes MeasuredProduct::Measure() {
  device_.MakeCurrent();
  FT_CHECK(error_.empty());
  const MatMulArgs args{.x = {x_.get(), DType::kBF16, Shape(shape_.num_rows, shape_.num_inputs)},
                        .weight = weight_.get(),
                        .out = {served_out_.get(), DType::kF32, Shape(shape_.num_rows, shape_.num_outputs)}};
  ProductTimes times{.served_seconds = SecondsOf([&] { serving_->MatMul(args); }),
                     .library_seconds = std::numeric_limits<double>::infinity(),
                     .bits_are_equal = false,
                     .library_serves = serving_->Serves(*weight_, shape_.num_rows)};
  const LibraryOperands operands = {
      .x = x_.get(), .weight_rows = weight_rows_.get(), .out = static_cast<float*>(library_out_.get())};
  for (const cublaslt::Algorithm& algorithm : algorithms_) {
    bool is_taken = true;
    const double seconds =
        SecondsOf([&] { is_taken = is_taken && matmul_->Multiply(operands, algorithm) == cublaslt::kSuccess; });
    if (!is_taken || seconds >= times.library_seconds) continue;
    times.library_seconds = seconds;
    times.bits_are_equal = HasServedBits();
  }
  return times;
}

double MeasuredProduct::SecondsOf(const std::function<void()>& enqueue) const {
  return EnqueuedSeconds(options_.num_repetitions, enqueue, device_);
}

bool MeasuredProduct::HasServedBits() const {
  const auto rows_of = [this](const Buffer& out) {
    return MatrixRows<const float>{static_cast<const float*>(out.get()), shape_.num_rows, shape_.num_outputs,
                                   shape_.num_outputs};
  };
  const Buffer differs = device_.Allocate(sizeof(uint32_t));
  CompareBits(rows_of(served_out_), rows_of(library_out_), static_cast<uint32_t*>(differs.get()), device_.stream());
  uint32_t is_different = 1;
  device_.Copy(&is_different, differs.get(), sizeof(is_different), CopyKind::kToHost);
  device_.Synchronize();
  return is_different == 0;
}

}  // namespace foretoken::kernels::cuda
