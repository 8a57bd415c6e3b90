// SPDX-License-Identifier: Apache-2.0
// The seam between the model and a device: every op that a forward pass, its draw and its commit need.
//
// Ops are enqueued in order; Synchronize waits for all of them. The CPU backend has done the work when a call returns.
// What an op fills on the host (paths, scores, children, a copy to the host) is there after Synchronize, and stays
// where it is until then; what it only reads there it has read when the call returns.
// Errors: what an op is given is our own logic. Shapes and dtypes that do not fit end the process; pointers, slots and
// positions are trusted.
// Threads: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/ops.h"
#include "kernels/recorder.h"

namespace foretoken::kernels {

// Device memory, freed with the pointer. It starts as zeros; pages that are never touched cost nothing on a host.
using Buffer = std::unique_ptr<void, std::function<void(void*)>>;

enum class CopyKind { kToDevice, kToHost, kOnDevice };

// What a model asks of a rank's device before it serves.
struct MemoryNeed {
  size_t weight_bytes = 0;
  size_t kv_bytes = 0;
  size_t pass_bytes = 0;  // what a forward pass computes with
};

// A product that a model will ask for.
struct ProductUse {
  const Weight* weight = nullptr;
  int64_t max_rows = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // What decides bits besides the build: for example "cpu/avx512_bf16 highway-1.0.3/AVX3". Part of the numerics
  // fingerprint.
  virtual std::string Describe() const = 0;

  // Whether ops are still being computed when their calls return: then the host has time for other work.
  virtual bool is_asynchronous() const { return false; }
  // How much memory is missing and which flag to turn, in one line; none: it fits, or it is not known.
  virtual std::optional<std::string> MemoryRefusal(const MemoryNeed&) const { return std::nullopt; }
  virtual Buffer Allocate(size_t num_bytes) = 0;
  virtual void Copy(void* to, const void* from, size_t num_bytes, CopyKind kind) = 0;
  virtual void Synchronize() = 0;
  // How the matrices of a model's layers are to be kept; its vocabulary's stay bf16. Part of Describe.
  virtual WeightQuantization weight_quantization() const { return WeightQuantization::kNone; }
  // Copies the parts exactly once, into the device's own layout.
  virtual std::unique_ptr<Weight> PrepareWeight(const WeightSource& source) = 0;
  // Finds the fastest of those ways to these products that give the same bits. Before the first of them, and before the
  // memory for what they read and write is taken: it is tried on. What was found, in a line for the log; empty: there
  // was nothing to choose.
  virtual std::string TuneProducts(std::span<const ProductUse>) { return ""; }

  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void MatMul(const MatMulArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void RopeStoreKv(const RopeStoreKvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void SiluMul(const SiluMulArgs& args) = 0;
  virtual void SumRanks(const SumRanksArgs& args) = 0;
  virtual void JoinColumns(const JoinColumnsArgs& args) = 0;
  virtual void MoveKv(const MoveKvArgs& args) = 0;
  virtual void AcceptTrees(const AcceptTreesArgs& args) = 0;
  virtual void BranchRows(const BranchRowsArgs& args) = 0;
  virtual void ScoreTokens(const ScoreTokensArgs& args) = 0;

  // Of the ops of a forward pass, from Embed to JoinColumns. Null: launches cost nothing here.
  virtual Recorder* recorder() { return nullptr; }
};

}  // namespace foretoken::kernels
