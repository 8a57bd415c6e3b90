// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/variant_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "tests/testing/fakes/forwarding_backend.h"

namespace foretoken::testing {
namespace {

constexpr int32_t kTile = 64;

// The slots that a row sees, in the order of visits, and the starts of new partial sums.
struct Visit {
  std::vector<int32_t> slots;
  std::vector<size_t> cuts;  // ascending, without 0, with slots.size()
};

// The softmax of one part, and the merge of parts, as in the usual online softmax (2205.14135).
struct Partial {
  float max = std::numeric_limits<float>::lowest();
  float sum = 0;
  std::vector<float> out;

  void Merge(const Partial& other) {
    const float new_max = std::max(max, other.max);
    const float decay = std::exp(max - new_max), other_decay = std::exp(other.max - new_max);
    sum = sum * decay + other.sum * other_decay;
    for (size_t d = 0; d < out.size(); ++d) out[d] = out[d] * decay + other.out[d] * other_decay;
    max = new_max;
  }
};

class VariantBackend final : public ForwardingBackend {
 public:
  VariantBackend(std::unique_ptr<kernels::Backend> backend, Variant variant)
      : ForwardingBackend(std::move(backend)), variant_(variant) {}

  std::string Describe() const override { return ForwardingBackend::Describe() + "/variant"; }

  void MatMul(const kernels::MatMulArgs& args) override {
    if (variant_ != Variant::kMatMulSplitsInputs || args.x.shape[0] == 1) return backend().MatMul(args);
    const int64_t num_inputs = args.x.shape[1];
    std::vector<uint16_t> inputs(args.x.shape.num_elements());
    kernels::MatMulArgs part = args;
    part.x.data = inputs.data();
    // Every third input, then the others. Kernels add in groups of powers of two, of up to 32 inputs: two halves of 64
    // inputs would add up to the same bits.
    for (const bool is_first : {true, false}) {
      for (int64_t i = 0; i < args.x.shape.num_elements(); ++i) {
        inputs[i] = (i % num_inputs % 3 == 0) == is_first ? args.x.as<uint16_t>()[i] : uint16_t{0};
      }
      backend().MatMul(part);
      part.mode = kernels::OutputMode::kAdd;
      part.bias = nullptr;
    }
  }

  void Attention(const kernels::AttentionArgs& args) override {
    if (variant_ == Variant::kMatMulSplitsInputs || variant_ == Variant::kMoveKvOneByOne ||
        variant_ == Variant::kSumRanksBackwards) {
      return backend().Attention(args);
    }
    for (int32_t segment = 0; segment < args.batch.num_segments; ++segment) {
      for (int32_t row = args.batch.segment_begins[segment]; row < args.batch.segment_begins[segment + 1]; ++row) {
        AttendRow(args, row, VisitOf(args, segment, row));
      }
    }
  }

  void SumRanks(const kernels::SumRanksArgs& args) override {
    if (variant_ != Variant::kSumRanksBackwards || args.out.shape[0] == 1) return backend().SumRanks(args);
    const int64_t num_ranks = args.pieces.shape[0], num_elements = args.out.shape.num_elements();
    std::vector<float> pieces;
    for (int64_t rank = num_ranks; rank-- > 0;) {
      const float* piece = args.pieces.as<float>() + rank * num_elements;
      pieces.insert(pieces.end(), piece, piece + num_elements);
    }
    kernels::SumRanksArgs backwards = args;
    backwards.pieces.data = pieces.data();
    backend().SumRanks(backwards);
  }

  void MoveKv(const kernels::MoveKvArgs& args) override {
    if (variant_ != Variant::kMoveKvOneByOne) return backend().MoveKv(args);
    for (const kernels::KvMove& move : args.moves) backend().MoveKv({.kv = args.kv, .moves = std::span(&move, 1)});
  }

 private:
  Visit VisitOf(const kernels::AttentionArgs& args, int32_t segment, int32_t row) const {
    const kernels::BatchView& batch = args.batch;
    const int32_t end = batch.positions[row] + 1, begin = args.window ? std::max(0, end - *args.window) : 0;
    const int32_t chain_len = batch.chain_lens[row];
    const int32_t* table = batch.block_tables + batch.block_table_begins[segment];
    Visit visit;
    for (int32_t position = begin; position < end; ++position) {
      visit.slots.push_back(position >= chain_len
                                ? batch.ancestor_slots[batch.ancestor_begins[row] + position - chain_len]
                                : table[position / kernels::kKvBlockSize] * kernels::kKvBlockSize +
                                      position % kernels::kKvBlockSize);
      if (position > begin && IsCut(batch, segment, row, position)) visit.cuts.push_back(position - begin);
    }
    visit.cuts.push_back(visit.slots.size());
    if (variant_ == Variant::kAttentionFollowsBlocks) std::ranges::sort(visit.slots);
    return visit;
  }

  bool IsCut(const kernels::BatchView& batch, int32_t segment, int32_t row, int32_t position) const {
    const int32_t first_new = batch.positions[batch.segment_begins[segment]];
    if (variant_ == Variant::kAttentionTreeApart && position == batch.chain_lens[row]) return true;
    if (variant_ == Variant::kAttentionNewRowsApart && position == first_new) return true;
    if (variant_ == Variant::kAttentionSplitsSmallBatches && batch.num_rows < 4) return position % (kTile / 4) == 0;
    return position % kTile == 0;
  }

  void AttendRow(const kernels::AttentionArgs& args, int32_t row, const Visit& visit) const {
    const int32_t head_dim = args.kv.head_dim;
    const auto num_heads = static_cast<int32_t>(args.q.shape[1] / head_dim);
    for (int32_t head = 0; head < num_heads; ++head) {
      const int32_t kv_head = head / (num_heads / args.kv.num_kv_heads);
      const size_t column = size_t{1} * row * args.q.shape[1] + size_t{1} * head * head_dim;
      Partial all{.out = std::vector<float>(head_dim)};
      size_t begin = 0;
      for (const size_t end : visit.cuts) {
        const auto part = std::span(visit.slots).subspan(begin, end - begin);
        all.Merge(Attend(args, kv_head, args.q.as<float>() + column, part));
        begin = end;
      }
      for (int32_t d = 0; d < head_dim; ++d) {
        args.out.as<uint16_t>()[column + d] = kernels::Bf16FromFloat(all.out[d] / all.sum);
      }
    }
  }

  static Partial Attend(const kernels::AttentionArgs& args, int32_t kv_head, const float* q,
                        std::span<const int32_t> slots) {
    const kernels::KvCacheView& kv = args.kv;
    Partial partial{.out = std::vector<float>(kv.head_dim)};
    std::vector<float> scores;
    for (const int32_t slot : slots) {
      const uint16_t* key = reinterpret_cast<const uint16_t*>(kv.elements(args.layer, 0, slot, kv_head));
      float score = 0;
      for (int32_t d = 0; d < kv.head_dim; ++d) score += q[d] * args.scale * kernels::FloatFromBf16(key[d]);
      scores.push_back(score);
      partial.max = std::max(partial.max, score);
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const uint16_t* value = reinterpret_cast<const uint16_t*>(kv.elements(args.layer, 1, slots[i], kv_head));
      const float weight = std::exp(scores[i] - partial.max);
      partial.sum += weight;
      for (int32_t d = 0; d < kv.head_dim; ++d) partial.out[d] += weight * kernels::FloatFromBf16(value[d]);
    }
    return partial;
  }

  Variant variant_;
};

}  // namespace

std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> WithVariant(Variant variant) {
  return [variant](std::unique_ptr<kernels::Backend> backend) {
    return std::make_unique<VariantBackend>(std::move(backend), variant);
  };
}

}  // namespace foretoken::testing
