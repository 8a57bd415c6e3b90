// SPDX-License-Identifier: Apache-2.0
// The seam between the model and a device: every op that a forward pass, its draw and its commit need.
//
// Ops are enqueued in order, and Synchronize waits for all of them. The CPU backend has finished the work when a call
// returns. An op fills its results on the host (paths, scores, children, a copy to the host) before Synchronize
// returns, and they must stay in place until then. An op has read its host inputs when the call returns.
//
// Errors: arguments are our own logic. Shapes and dtypes that do not fit end the process. Pointers, slots and positions
// are trusted.
// Threads: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/recorder.h"

namespace foretoken::kernels {

// Device memory, freed with the pointer. The memory starts as zeros. On a host, pages that are never touched cost
// nothing.
using Buffer = std::unique_ptr<void, std::function<void(void*)>>;

enum class CopyKind { kToDevice, kToHost, kOnDevice };

// The memory that a model needs on a rank's device before it serves.
struct MemoryNeed {
  size_t weight_bytes = 0;
  size_t kv_bytes = 0;
  size_t pass_bytes = 0;  // the tensors of a forward pass
};

// The largest model that a device computes.
struct ModelBounds {
  int64_t vocab_size = std::numeric_limits<int64_t>::max();
  int64_t head_dim = std::numeric_limits<int64_t>::max();
};

// A product that a model will ask for.
struct ProductUse {
  const Weight* weight = nullptr;
  int64_t max_rows = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Names everything that decides bits besides the build: for example "cpu/avx512_bf16 highway-1.0.3/AVX3". Part of the
  // numerics fingerprint.
  virtual std::string Describe() const = 0;

  // Whether calls return before their ops are computed. If so, the host has time for other work.
  virtual bool is_asynchronous() const { return false; }
  // One line that says how much memory is missing and which flag to turn. Unset: the memory suffices, or its size is
  // not known.
  virtual std::optional<std::string> MemoryRefusal(const MemoryNeed&) const { return std::nullopt; }
  virtual ModelBounds model_bounds() const { return {}; }
  virtual Buffer Allocate(size_t num_bytes) = 0;
  virtual void Copy(void* to, const void* from, size_t num_bytes, CopyKind kind) = 0;
  virtual void Synchronize() = 0;
  // How the backend keeps the matrices of a model's layers. Part of Describe.
  virtual Quantization weight_quantization() const { return {}; }
  // The same for the vocabulary's matrices.
  virtual Quantization head_quantization() const { return {}; }
  // How a model's K/V is kept. Part of Describe.
  virtual KvCacheDtype kv_cache_dtype() const { return KvCacheDtype::kBf16; }
  // How PrepareWeight keeps the integers of stored parts in a stack, from the input `first_input` on: the groups of
  // each part. Empty: it keeps the values that they stand for.
  virtual std::vector<IntegerGroups> KeptGroups(std::span<const StoredPart> /*parts*/, int64_t /*first_input*/) const {
    return {};
  }
  // The bytes that a matrix takes in the backend's layout. `kept` are the groups of its integers (KeptGroups); unset:
  // the backend keeps values, as `quantization` says.
  virtual size_t MatrixBytes(const Shape& shape, const Quantization& quantization,
                             const std::optional<IntegerGroups>& kept) const = 0;
  // Whether all experts of a layer must stay in memory, because the device itself chooses among them.
  virtual bool keeps_all_experts() const { return false; }
  // Copies each part exactly once, into the device's own layout.
  virtual std::unique_ptr<Weight> PrepareWeight(const WeightSource& source) = 0;
  // Makes a set of a layer's experts, which all have equal shapes: expert(i) returns the i-th. If keeps_all_experts,
  // each is asked for now, and must live as long as the set. Otherwise Experts asks for each one that a row chose, once
  // and in ascending order, and it must live until the next is asked for.
  virtual std::unique_ptr<ExpertSet> PrepareExperts(int32_t num_experts,
                                                    std::function<Expert(int32_t expert)> expert) = 0;
  // Tries the ways to compute these products that give the same bits, and keeps the fastest for each. The caller tunes
  // before the first product, and before it allocates the products' inputs and outputs: the trials need memory. Returns
  // a line about the result for the log; empty: there was nothing to choose.
  virtual std::string TuneProducts(std::span<const ProductUse>) { return ""; }

  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void MatMul(const MatMulArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void MeanSquares(const MeanSquaresArgs& args) = 0;
  virtual void RopeStoreKv(const RopeStoreKvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void Glu(const GluArgs& args) = 0;
  virtual void Experts(const ExpertsArgs& args) = 0;
  virtual void Activate(const ActivateArgs& args) = 0;
  virtual void RecurrentCell(const RecurrentCellArgs& args) = 0;
  virtual void SumRanks(const SumRanksArgs& args) = 0;
  virtual void JoinColumns(const JoinColumnsArgs& args) = 0;
  virtual void CopyRows(const CopyRowsArgs& args) = 0;
  virtual void CapLogits(const CapLogitsArgs& args) = 0;
  virtual void SpreadLogits(const SpreadLogitsArgs& args) = 0;
  virtual void MoveKv(const MoveKvArgs& args) = 0;
  virtual void AcceptTrees(const AcceptTreesArgs& args) = 0;
  virtual void BranchRows(const BranchRowsArgs& args) = 0;
  virtual void ScoreTokens(const ScoreTokensArgs& args) = 0;

  // Records the ops of a forward pass, from Embed to CapLogits. Null: recording saves nothing on this device.
  virtual Recorder* recorder() { return nullptr; }
};

}  // namespace foretoken::kernels
