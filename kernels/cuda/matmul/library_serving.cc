// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/library_serving.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/enqueued_seconds.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/unpack_weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kMaxAlgorithms = 4;  // algorithms to try
constexpr int kTimedProducts = 4;

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % cublaslt::kPointerAlignment == 0; }

// The arguments for the rows from `first` on.
MatMulArgs RowsFrom(MatMulArgs args, int64_t first) {
  args.x.data = args.x.as<uint16_t>() + first * args.x.shape[1];
  args.out.data = args.out.as<float>() + first * args.out.shape[1];
  args.x.shape.dims[0] -= first;
  args.out.shape.dims[0] -= first;
  return args;
}

std::string RowsText(int64_t num_rows) { return " " + std::to_string(num_rows) + " rows"; }

}  // namespace

LibraryServing::LibraryServing(Device& device, LibraryOptions options) : device_(device), options_(std::move(options)) {
  FT_CHECK(std::has_single_bit(static_cast<uint64_t>(options_.min_rows)) && options_.min_rows >= 16);
  if (options_.seconds_of) return;
  options_.seconds_of = [this](const std::function<void()>& enqueue) {
    return EnqueuedSeconds(kTimedProducts, enqueue, device_);
  };
}

// The most whole panels that are unpacked at a time, or all outputs.
int64_t LibraryServing::RunOutputs(const Weight& weight) const {
  const int64_t panel_bytes = kPanelOutputs * weight.in_features() * static_cast<int64_t>(sizeof(uint16_t));
  return std::min(static_cast<int64_t>(options_.run_bytes) / panel_bytes * kPanelOutputs, weight.out_features());
}

// If the operands are aligned, so are all parts of them, because rows come 16 at a time and outputs a panel at a time.
bool LibraryServing::IsServable(const CudaWeight& weight) const {
  return weight.packed().format == WeightFormat::kBf16 && weight.numeric_class().num_splits == 1 &&
         weight.in_features() % kSliceInputs == 0 && weight.out_features() % 4 == 0 && RunOutputs(weight) > 0;
}

// One weight of each shape that is not tuned yet, with the largest row count among that shape's uses.
std::vector<ProductUse> LibraryServing::ServableShapes(std::span<const ProductUse> uses) const {
  std::vector<ProductUse> shapes;
  for (const ProductUse& use : uses) {
    if (use.max_rows < options_.min_rows || !IsServable(AsCudaWeight(use.weight))) continue;
    if (FindShape(*use.weight) != nullptr) continue;
    const auto same = std::ranges::find_if(shapes, [&](const ProductUse& other) {
      return other.weight->out_features() == use.weight->out_features() &&
             other.weight->in_features() == use.weight->in_features();
    });
    if (same == shapes.end()) {
      shapes.push_back(use);
    } else {
      same->max_rows = std::max(same->max_rows, use.max_rows);
    }
  }
  return shapes;
}

std::string LibraryServing::Tune(std::span<const ProductUse> uses) {
  const std::vector<ProductUse> shapes = ServableShapes(uses);
  if (shapes.empty()) return "";
  if (library_ == nullptr) {
    OpenedLibrary opened = OpenLibrary(options_.file, device_);
    if (opened.library == nullptr) return opened.error + ": our kernels compute all products";
    library_ = std::move(opened.library);
    weight_rows_ = device_.Allocate(options_.run_bytes);
  }
  std::string found = "cuBLASLt:";
  for (const ProductUse& use : shapes) found += TuneShape(use) + (&use == &shapes.back() ? "" : ";");
  if (shapes_.empty()) {
    weight_rows_.reset();
    library_.reset();
  }
  return found;
}

std::string LibraryServing::TuneShape(const ProductUse& use) {
  const CudaWeight& weight = AsCudaWeight(use.weight);
  TunedShape shape{.num_outputs = weight.out_features(),
                   .num_inputs = weight.in_features(),
                   .run_outputs = RunOutputs(weight),
                   .buckets = {}};
  const auto max_rows = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(use.max_rows)));
  const Buffer x = device_.Allocate(max_rows * shape.num_inputs * sizeof(uint16_t));
  const Buffer out = device_.Allocate(max_rows * shape.num_outputs * sizeof(float));
  const TrialMemory memory = {.x = static_cast<uint16_t*>(x.get()),
                              .weight_rows = static_cast<uint16_t*>(weight_rows_.get()),
                              .out = static_cast<float*>(out.get())};
  std::vector<LibraryCheck> checks;
  checks.emplace_back(shape.run_outputs, shape.num_inputs, device_);
  const int64_t last_outputs = shape.num_outputs % shape.run_outputs;
  if (last_outputs > 0) checks.emplace_back(last_outputs, shape.num_inputs, device_);
  std::string found = " " + std::to_string(shape.num_outputs) + " x " + std::to_string(shape.num_inputs) + ":";
  for (int64_t num_rows = options_.min_rows; num_rows <= max_rows; num_rows *= 2) {
    if (num_rows > options_.min_rows) found += ",";
    found += RowsText(num_rows) + " " + TryBucket(weight, memory, checks, shape, num_rows);
  }
  device_.Synchronize();  // work under way uses memory that is freed on return
  if (!shape.buckets.empty()) shapes_.push_back(std::move(shape));
  return found;
}

// Adds the bucket to the shape if the library serves it. Returns the result in words.
std::string LibraryServing::TryBucket(const CudaWeight& weight, const TrialMemory& memory,
                                      std::span<LibraryCheck> checks, TunedShape& shape, int64_t num_rows) {
  Bucket bucket{.num_rows = num_rows, .runs = {}};
  for (LibraryCheck& check : checks) {
    LibraryMatMul matmul(*library_, {.num_rows = num_rows,
                                     .num_outputs = check.num_outputs(),
                                     .num_inputs = shape.num_inputs,
                                     .out_stride = shape.num_outputs});
    const std::vector<cublaslt::Algorithm> algorithms = matmul.FindAlgorithms(SumOrder::kOneChain, kMaxAlgorithms);
    if (algorithms.empty()) return "no algorithm";
    const auto equal = std::ranges::find_if(
        algorithms, [&](const cublaslt::Algorithm& algorithm) { return check.HasOurBits(matmul, algorithm, memory); });
    if (equal == algorithms.end()) return "other bits";
    bucket.runs.push_back({.matmul = std::move(matmul), .algorithm = *equal});
  }
  const MatMulArgs args{.x = {memory.x, DType::kBF16, Shape(num_rows, shape.num_inputs)},
                        .weight = &weight,
                        .out = {memory.out, DType::kF32, Shape(num_rows, shape.num_outputs)}};
  const RowBlock block = {.first_row = 0, .bucket = &bucket};
  const double our_seconds = options_.seconds_of([&] { cuda::MatMul(args, device_.stream()); });
  const double library_seconds = options_.seconds_of([&] { Enqueue(args, shape, {&block, 1}); });
  if (library_seconds >= our_seconds) return "slower";
  shape.buckets.insert(shape.buckets.begin(), std::move(bucket));
  return "served";
}

void LibraryServing::MatMul(const MatMulArgs& args) {
  const std::vector<RowBlock> blocks = CutIntoBlocks(args);
  if (blocks.empty()) return cuda::MatMul(args, device_.stream());
  Enqueue(args, *FindShape(*args.weight), blocks);
  const int64_t num_done = blocks.back().first_row + blocks.back().bucket->num_rows;
  if (num_done < args.x.shape[0]) cuda::MatMul(RowsFrom(args, num_done), device_.stream());
}

bool LibraryServing::Serves(const CudaWeight& weight, int64_t num_rows) const {
  const TunedShape* shape = FindShape(weight);
  return shape != nullptr &&
         std::ranges::any_of(shape->buckets, [&](const Bucket& bucket) { return bucket.num_rows <= num_rows; });
}

const LibraryServing::TunedShape* LibraryServing::FindShape(const Weight& weight) const {
  const auto found = std::ranges::find_if(shapes_, [&](const TunedShape& shape) {
    return shape.num_outputs == weight.out_features() && shape.num_inputs == weight.in_features();
  });
  return found == shapes_.end() || !IsServable(AsCudaWeight(&weight)) ? nullptr : &*found;
}

// Cuts the rows, from the first on, into as many buckets as fit; our kernels compute the rest.
std::vector<LibraryServing::RowBlock> LibraryServing::CutIntoBlocks(const MatMulArgs& args) const {
  const TunedShape* shape = args.bias == nullptr ? FindShape(*args.weight) : nullptr;
  if (shape == nullptr || !IsAligned(args.x.data) || !IsAligned(args.out.data)) return {};
  std::vector<RowBlock> blocks;
  int64_t first_row = 0;
  for (const Bucket& bucket : shape->buckets) {
    for (; args.x.shape[0] - first_row >= bucket.num_rows; first_row += bucket.num_rows) {
      blocks.push_back({.first_row = first_row, .bucket = &bucket});
    }
  }
  return blocks;
}

void LibraryServing::Enqueue(const MatMulArgs& args, const TunedShape& shape, std::span<const RowBlock> blocks) {
  const PackedWeight& weight = AsCudaWeight(args.weight).packed();
  auto* const weight_rows = static_cast<uint16_t*>(weight_rows_.get());
  for (int64_t first = 0; first < shape.num_outputs; first += shape.run_outputs) {
    const IndexRange outputs = {first, std::min(first + shape.run_outputs, shape.num_outputs)};
    UnpackRows(weight, outputs, weight_rows, device_.stream());
    for (const RowBlock& block : blocks) {
      const Run& run = outputs.size() == shape.run_outputs ? block.bucket->runs.front() : block.bucket->runs.back();
      const int status = run.matmul.Multiply({.x = args.x.as<uint16_t>() + block.first_row * shape.num_inputs,
                                              .weight_rows = weight_rows,
                                              .out = args.out.as<float>() + block.first_row * shape.num_outputs + first,
                                              .mode = args.mode},
                                             run.algorithm);
      if (status == cublaslt::kSuccess) continue;
      EndOnFailedCall({.file = __FILE__, .line = __LINE__, .call = "cublasLtMatmul"},
                      "status " + std::to_string(status));
    }
  }
}

}  // namespace foretoken::kernels::cuda
