// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/activate.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/move_kv.h"
#include "kernels/cuda/attention/rope_store_kv.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/device.h"
#include "kernels/cuda/cap_logits.h"
#include "kernels/cuda/copy_rows.h"
#include "kernels/cuda/draw/accept_trees.h"
#include "kernels/cuda/draw/branch_rows.h"
#include "kernels/cuda/draw/row_batch.h"
#include "kernels/cuda/draw/score_tokens.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/join_columns.h"
#include "kernels/cuda/matmul/library_serving.h"
#include "kernels/cuda/matmul/weight.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/recurrent_cell.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/spread_logits.h"
#include "kernels/cuda/sum_ranks.h"

namespace foretoken::kernels::cuda {
namespace {

// The page-locked memory that copies to the device may take between two waits. A step's batch takes some ten KiB, and
// the masks of 1,024 rows of a vocabulary of 262,144 take all: nothing of a step may wait for its own pass.
constexpr size_t kStagingBytes = size_t{32} << 20;

// A rank's memory beside weights, K/V and the tensors of a pass, by counting: partial results of attention (136 MB for
// heads of 128 dimensions, 270 MB for 256), the memory that graphs keep, code, and registers that kernels spill, a few
// hundred bytes for each thread that a GPU can have.
constexpr size_t kScratchBytes = size_t{512} << 20;

// The part of kScratchBytes that is kept from the first op on. The recorded passes of a model with 64 heads of 128
// dimensions need half of it.
constexpr size_t kKeptScratchBytes = size_t{64} << 20;

// With more rows the GPU is busy for longer than the launches take.
constexpr int32_t kRecordedRowCounts[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
static_assert(kRecordedRowCounts[std::size(kRecordedRowCounts) - 1] < kMinLibraryRows);

class GraphRecorder final : public Recorder {
 public:
  explicit GraphRecorder(Device& device) : device_(device) {}

  std::span<const int32_t> row_counts() const override { return kRecordedRowCounts; }
  std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) override {
    device_.MakeCurrent();
    return std::make_unique<Graph>(device_, enqueue);
  }

 private:
  Device& device_;
};

Quantization QuantizationOf(const std::string& name, int group_size) {
  const WeightQuantization kept_as = name == "fp8"    ? WeightQuantization::kFp8
                                     : name == "int8" ? WeightQuantization::kInt8
                                     : name == "int4" ? WeightQuantization::kInt4
                                                      : WeightQuantization::kNone;
  return {kept_as, group_size};
}

// A part of CudaBackend::Describe.
std::string DescribePart(const Quantization& quantization, const std::string& what) {
  switch (quantization.weights) {
    case WeightQuantization::kNone:
      break;
    case WeightQuantization::kFp8:
      return what + " fp8";
    case WeightQuantization::kInt8:
      return what + " w8a16-g" + std::to_string(quantization.group_size);
    case WeightQuantization::kInt4:
      return what + " w4a16-g" + std::to_string(quantization.group_size);
  }
  return "";
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options, const LibraryOptions& library)
      : device_(std::move(device)),
        num_ranks_(options.num_ranks),
        weights_(QuantizationOf(options.quantization.weights, options.quantization.group_size)),
        head_(QuantizationOf(options.quantization.head, options.quantization.group_size)),
        kv_cache_(KvCacheDtypeOf(options.quantization.kv_cache)),
        recorder_(*device_),
        products_(*device_, library) {
    device_->KeepScratch(kKeptScratchBytes);
    device_->Pinned(kStagingBytes);  // all of it while no pass runs: locking pages may wait for every GPU
    device_->Synchronize();
  }

  std::string Describe() const override {
    const DeviceFacts& facts = device_->facts();
    std::string name = facts.name;
    std::ranges::replace(name, ' ', '-');
    return "cuda/" + name + " sm_" + std::to_string(facts.capability.major) + std::to_string(facts.capability.minor) +
           " cuda-" + std::to_string(facts.toolkit.major) + "." + std::to_string(facts.toolkit.minor) +
           DescribePart(weights_, "") + DescribePart(head_, " head") + DescribeKvCache(kv_cache_);
  }

  bool is_asynchronous() const override { return true; }
  std::optional<std::string> MemoryRefusal(const MemoryNeed& need) const override {
    DeviceFacts facts = device_->facts();
    const int num_devices = std::min(facts.num_devices, num_ranks_);
    const auto ranks_here = static_cast<size_t>((num_ranks_ + num_devices - 1) / num_devices);
    device_->MakeCurrent();  // since Open, other ranks and NCCL have taken some memory
    FT_CUDA_CHECK(cudaMemGetInfo(&facts.free_bytes, &facts.total_bytes));
    return cuda::MemoryRefusal({.weight_bytes = need.weight_bytes * ranks_here,
                                .kv_bytes = need.kv_bytes * ranks_here,
                                .pass_bytes = (need.pass_bytes + kScratchBytes) * ranks_here + LibraryBytes()},
                               facts, num_devices);
  }

  ModelBounds model_bounds() const override {
    return {.vocab_size = cuda::kMaxDrawTokens, .head_dim = cuda::kMaxAttentionHeadDim};
  }
  Buffer Allocate(size_t num_bytes) override { return device().Allocate(num_bytes); }
  void Copy(void* to, const void* from, size_t num_bytes, CopyKind kind) override;
  void Synchronize() override {
    device().Synchronize();
    num_staged_bytes_ = 0;
  }
  Quantization weight_quantization() const override { return weights_; }
  Quantization head_quantization() const override { return head_; }
  KvCacheDtype kv_cache_dtype() const override { return kv_cache_; }
  std::vector<IntegerGroups> KeptGroups(std::span<const StoredPart> parts, int64_t first_input) const override {
    const std::optional<IntegerGroups> common = CommonGroups(parts);
    const std::optional<IntegerGroups> kept = common ? cuda::KeptGroups(*common, first_input) : std::nullopt;
    return kept ? std::vector<IntegerGroups>(parts.size(), *kept) : std::vector<IntegerGroups>();
  }
  std::unique_ptr<Weight> PrepareWeight(const WeightSource& source) override {
    return cuda::PrepareWeight(source, device());
  }
  size_t MatrixBytes(const Shape& shape, const Quantization& quantization,
                     const std::optional<IntegerGroups>& kept) const override {
    return cuda::MatrixBytes(shape, quantization, kept);
  }
  bool keeps_all_experts() const override { return true; }
  std::unique_ptr<ExpertSet> PrepareExperts(int32_t num_experts,
                                            std::function<Expert(int32_t expert)> expert) override {
    return cuda::PrepareExperts(num_experts, expert, device());
  }
  std::string TuneProducts(std::span<const ProductUse> uses) override {
    device_->MakeCurrent();
    return SharesDevice() ? "" : products_.Tune(uses);
  }

  void Embed(const EmbedArgs& args) override { cuda::Embed(args, stream()); }
  void MatMul(const MatMulArgs& args) override {
    device_->MakeCurrent();
    products_.MatMul(args);
  }
  void RmsNorm(const RmsNormArgs& args) override { cuda::RmsNorm(args, stream()); }
  void MeanSquares(const MeanSquaresArgs& args) override { cuda::MeanSquares(args, stream()); }
  void RopeStoreKv(const RopeStoreKvArgs& args) override { cuda::RopeStoreKv(args, stream()); }
  void Attention(const AttentionArgs& args) override { cuda::Attention(args, stream()); }
  void Glu(const GluArgs& args) override { cuda::Glu(args, stream()); }
  void Experts(const ExpertsArgs& args) override { cuda::Experts(args, stream()); }
  void Activate(const ActivateArgs& args) override { cuda::Activate(args, stream()); }
  void RecurrentCell(const RecurrentCellArgs& args) override { cuda::RecurrentCell(args, stream()); }
  void SumRanks(const SumRanksArgs& args) override { cuda::SumRanks(args, stream()); }
  void JoinColumns(const JoinColumnsArgs& args) override { cuda::JoinColumns(args, stream()); }
  void CopyRows(const CopyRowsArgs& args) override { cuda::CopyRows(args, stream()); }
  void CapLogits(const CapLogitsArgs& args) override { cuda::CapLogits(args, stream()); }
  void SpreadLogits(const SpreadLogitsArgs& args) override { cuda::SpreadLogits(args, stream()); }
  void MoveKv(const MoveKvArgs& args) override { cuda::MoveKv(args, stream()); }
  void AcceptTrees(const AcceptTreesArgs& args) override { cuda::AcceptTrees(args, device()); }
  void BranchRows(const BranchRowsArgs& args) override { cuda::BranchRows(args, device()); }
  void ScoreTokens(const ScoreTokensArgs& args) override { cuda::ScoreTokens(args, device()); }

  Recorder* recorder() override { return &recorder_; }

  NcclPlace place() { return {.device = device_->facts().index, .stream = stream()}; }

 private:
  bool SharesDevice() const { return num_ranks_ > device_->facts().num_devices; }
  size_t LibraryBytes() const { return SharesDevice() ? 0 : LibraryServing::kMaxBytes; }

  // Makes the device current on the calling thread.
  Device& device() {
    device_->MakeCurrent();
    return *device_;
  }
  cudaStream_t stream() { return device().stream(); }

  std::unique_ptr<Device> device_;
  const int num_ranks_;
  const Quantization weights_;
  const Quantization head_;
  const KvCacheDtype kv_cache_;
  size_t num_staged_bytes_ = 0;  // since the last Synchronize
  GraphRecorder recorder_;
  LibraryServing products_;
};

void CudaBackend::Copy(void* to, const void* from, size_t num_bytes, CopyKind kind) {
  if (kind != CopyKind::kToDevice) return device().Copy(to, from, num_bytes, kind);
  if (num_bytes > kStagingBytes) {
    device().Copy(to, from, num_bytes, kind);
    return Synchronize();  // the caller may now change or free the source
  }
  if (num_staged_bytes_ + num_bytes > kStagingBytes) Synchronize();
  num_staged_bytes_ += num_bytes;
  void* const staged = device().Pinned(num_bytes);
  std::memcpy(staged, from, num_bytes);
  device().Copy(to, staged, num_bytes, kind);
}

}  // namespace

MadeBackend MakeBackendWithLibrary(const BackendOptions& options, const LibraryOptions& library) {
  Device::Opened opened = Device::Open(options.rank);
  if (opened.device == nullptr) return {nullptr, std::move(opened.error)};
  return {std::make_unique<CudaBackend>(std::move(opened.device), options, library), ""};
}

MadeBackend MakeBackend(const BackendOptions& options) { return MakeBackendWithLibrary(options, LibraryOptions()); }

bool HaveOwnDevices(std::span<Backend* const> backends) {
  std::set<int> gpus;
  for (Backend* const backend : backends) gpus.insert(static_cast<CudaBackend*>(backend)->place().device);
  return gpus.size() == backends.size();
}

MadeCommunicators MakeCommunicators(std::span<Backend* const> backends) {
  const LoadedNccl nccl = LoadNccl();
  if (!nccl.library.has_value()) return {{}, nccl.error};
  std::vector<NcclPlace> places;
  for (Backend* const backend : backends) places.push_back(static_cast<CudaBackend*>(backend)->place());
  return MakeNcclCommunicators(places, *nccl.library);
}

}  // namespace foretoken::kernels::cuda
