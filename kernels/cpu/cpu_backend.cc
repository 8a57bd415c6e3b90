// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/activate.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/move_kv.h"
#include "kernels/cpu/attention/rope_store_kv.h"
#include "kernels/cpu/cap_logits.h"
#include "kernels/cpu/copy_rows.h"
#include "kernels/cpu/draw/accept_trees.h"
#include "kernels/cpu/draw/branch_rows.h"
#include "kernels/cpu/draw/score_tokens.h"
#include "kernels/cpu/embed.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/glu.h"
#include "kernels/cpu/join_columns.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/cpu/recurrent_cell.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/spread_logits.h"
#include "kernels/cpu/sum_ranks.h"
#include "kernels/free_memory.h"

namespace foretoken::kernels::cpu {

namespace {

// For example "w4a8-g32": the bits of weights and rows, and the inputs that share a scale. "stored": as the file has
// it.
std::string Describe(const Quantization& quantization) {
  if (quantization.weights == WeightQuantization::kNone) return quantization.int8_rows ? "stored-a8" : "stored";
  return std::string(quantization.weights == WeightQuantization::kInt8 ? "w8" : "w4") +
         (quantization.int8_rows ? "a8" : "a16") + "-g" + std::to_string(quantization.group_size);
}

}  // namespace

CpuBackend::CpuBackend(IsaPin pin, int num_threads, const CpuBackendOptions& options)
    : pin_(std::move(pin)), options_(options), pool_(num_threads) {}

std::string CpuBackend::Describe() const {
  std::string text = std::string("cpu/") + Name(pin_.isa()) + " " + DescribeHighway();
  const bool is_plain = options_.weights.weights == WeightQuantization::kNone &&
                        options_.head.weights == WeightQuantization::kNone && !options_.weights.int8_rows;
  if (!is_plain) text += " " + cpu::Describe(options_.weights) + " head " + cpu::Describe(options_.head);
  text += DescribeKvCache(options_.kv_cache);
  return text;
}

// What is mapped counts whole: most of a K/V cache, for example, is touched only later. What other processes have taken
// does not count.
std::optional<std::string> CpuBackend::MemoryRefusal(const MemoryNeed& need) const {
  constexpr size_t kMiB = size_t{1} << 20;
  const size_t num_ranks = static_cast<size_t>(options_.num_ranks);
  const size_t num_bytes = num_ranks * (need.weight_bytes + need.kv_bytes + need.pass_bytes);
  const std::optional<int64_t> whole = WholeMemory();
  const size_t num_mapped = NumMappedBytes();
  const bool is_beyond = whole.has_value() && num_mapped + num_bytes > static_cast<size_t>(*whole);
  if (!is_beyond && CanMap(num_bytes)) return std::nullopt;
  const auto mib = [](size_t bytes) { return std::to_string(bytes / kMiB) + " MiB"; };
  return "memory: expected " + mib(num_bytes) + ", of which K/V takes " + mib(num_ranks * need.kv_bytes) +
         " and the tensors of a pass take " + mib(num_ranks * need.pass_bytes) + "; " +
         (is_beyond ? "this process can have " + mib(static_cast<size_t>(*whole)) +
                          (num_mapped > 0 ? " and has " + mib(num_mapped) : "")
                    : "the system does not grant so much to this process (ulimit -v)") +
         ". Lower --" + (need.pass_bytes > need.kv_bytes ? "max_step_rows" : "kv_cache_mb");
}

Buffer CpuBackend::Allocate(size_t num_bytes) {
  auto pages = std::make_shared<Pages>(num_bytes);  // shared, because std::function must be copyable
  void* data = pages->data();
  return Buffer(data, [pages = std::move(pages)](void*) mutable { pages.reset(); });
}

void CpuBackend::Copy(void* to, const void* from, size_t num_bytes, CopyKind) {
  if (num_bytes != 0) std::memcpy(to, from, num_bytes);
}

std::unique_ptr<Weight> CpuBackend::PrepareWeight(const WeightSource& source) {
  return cpu::PrepareWeight(source, pool_, pin_.isa());
}

std::unique_ptr<ExpertSet> CpuBackend::PrepareExperts(int32_t /*num_experts*/,
                                                      std::function<Expert(int32_t expert)> expert) {
  return std::make_unique<CpuExperts>(std::move(expert));
}

void CpuBackend::Embed(const EmbedArgs& args) { cpu::Embed(args, pool_); }
void CpuBackend::MatMul(const MatMulArgs& args) { cpu::MatMul(args, pin_.isa(), matmul_scratch_, pool_); }
void CpuBackend::RmsNorm(const RmsNormArgs& args) { cpu::RmsNorm(args, pool_); }
void CpuBackend::MeanSquares(const MeanSquaresArgs& args) { cpu::MeanSquares(args, pool_); }
void CpuBackend::RopeStoreKv(const RopeStoreKvArgs& args) { cpu::RopeStoreKv(args, pool_); }
void CpuBackend::Attention(const AttentionArgs& args) { cpu::Attention(args, pool_); }
void CpuBackend::Glu(const GluArgs& args) { cpu::Glu(args, pool_); }
void CpuBackend::Experts(const ExpertsArgs& args) {
  cpu::Experts(
      args, [this](const MatMulArgs& product) { MatMul(product); }, expert_scratch_, pool_);
}
void CpuBackend::Activate(const ActivateArgs& args) { cpu::Activate(args, pool_); }
void CpuBackend::RecurrentCell(const RecurrentCellArgs& args) { cpu::RecurrentCell(args, pool_); }
void CpuBackend::SumRanks(const SumRanksArgs& args) { cpu::SumRanks(args, pool_); }
void CpuBackend::JoinColumns(const JoinColumnsArgs& args) { cpu::JoinColumns(args, pool_); }
void CpuBackend::CopyRows(const CopyRowsArgs& args) { cpu::CopyRows(args, pool_); }
void CpuBackend::CapLogits(const CapLogitsArgs& args) { cpu::CapLogits(args, pool_); }
void CpuBackend::SpreadLogits(const SpreadLogitsArgs& args) { cpu::SpreadLogits(args, pool_); }
void CpuBackend::MoveKv(const MoveKvArgs& args) { cpu::MoveKv(args, pool_); }
void CpuBackend::AcceptTrees(const AcceptTreesArgs& args) { cpu::AcceptTrees(args, pool_); }
void CpuBackend::BranchRows(const BranchRowsArgs& args) { cpu::BranchRows(args, pool_); }
void CpuBackend::ScoreTokens(const ScoreTokensArgs& args) { cpu::ScoreTokens(args, pool_); }

}  // namespace foretoken::kernels::cpu
