// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/attention_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/quantize.h"
#include "tests/reference/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::AttentionArgs;
using kernels::Bf16FromFloat;
using kernels::DType;
using kernels::FloatFromBf16;
using kernels::kKvBlockSize;
using kernels::KvCacheView;
using kernels::Shape;

// Element d of a token's K (part 0), V (1) or q (2) at a head. It depends on the token, not on its place in memory.
float TokenElement(uint32_t token, uint32_t part, uint32_t head, uint32_t d) {
  uint64_t word = ((uint64_t{token} * 4 + part) * 64 + head) * 1024 + d + 1;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;  // splitmix64's finaliser
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return (static_cast<float>(word >> 40) * 0x1p-24f - 0.5f) * (part == 0 ? 4.0f : 2.0f);
}

// The elements of K and V.
enum class Elements {
  kPlain,
  // Tokens 64 apart have the same K and opposite V, and some V are large. Most of a sum cancels, so the rest shows the
  // order of additions even in the few bits of a bf16 output.
  kCancelling,
};

// From this token on V is not finite.
constexpr uint32_t kFirstNonFinite = 100000;

float StoredElement(Elements elements, uint32_t token, uint32_t part, uint32_t head, uint32_t d) {
  if (token >= kFirstNonFinite && part == 1) {
    return d % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  if (elements == Elements::kPlain) return TokenElement(token, part, head, d);
  const float element = TokenElement(token % 64, part, head, d);
  if (part == 0) return element;
  return element * (token % 64 < 48 ? 1.0f : 4096.0f) * (token / 64 % 2 == 0 ? 1.0f : -1.0f);
}

// Rows over a paged cache. Tokens are numbers, and each sequence has places for its tokens' K and V. The rest of the
// cache is NaN, so that a sum with an unseen slot shows.
class AttentionBatch {
 public:
  AttentionBatch(HeadShape shape, Elements elements, int32_t num_blocks, uint32_t layout_seed)
      : shape_(shape), elements_(elements) {
    kv_ = {.num_layers = 2,
           .num_blocks = num_blocks,
           .num_kv_heads = shape.num_kv_heads,
           .head_dim = shape.head_dim,
           .dtype = shape.kv_dtype};
    for (int32_t head = 0; head < shape.num_heads; ++head) sinks_.push_back(3.0f - static_cast<float>(head * head));
    cache_.assign(kv_.num_bytes() / 2, Bf16FromFloat(std::numeric_limits<float>::quiet_NaN()));
    kv_.data = cache_.data();
    free_blocks_.resize(num_blocks);
    std::iota(free_blocks_.rbegin(), free_blocks_.rend(), 0);
    RandomValues random(layout_seed);
    for (int32_t i = num_blocks - 1; i > 0 && layout_seed != 0; --i) {
      std::swap(free_blocks_[i], free_blocks_[random.Below(i + 1)]);
    }
  }

  // Starts a segment with `tokens` as its chain.
  void AddSegment(const std::vector<uint32_t>& tokens) {
    block_table_begins_.push_back(static_cast<int32_t>(block_tables_.size()));
    segment_begins_.push_back(static_cast<int32_t>(rows_.size()));
    chain_ = tokens;
    for (size_t position = 0; position < tokens.size(); ++position) {
      if (position % kKvBlockSize == 0) block_tables_.push_back(TakeBlock());
      Store(tokens[position], block_tables_.back() * kKvBlockSize + static_cast<int32_t>(position % kKvBlockSize));
    }
  }

  // Adds a row of the chain.
  void AddChainRow(int32_t position) { AddRow({chain_[position], position, position + 1, {}}); }

  // Adds a row below the first `chain_len` tokens of the chain. `path` ends with the row's own token. Nodes of a
  // segment that share a path prefix share slots.
  void AddTreeRow(int32_t chain_len, const std::vector<uint32_t>& path) {
    Row row{path.back(), chain_len + static_cast<int32_t>(path.size()) - 1, chain_len, {}};
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      std::vector<uint32_t> key(path.begin(), path.begin() + depth);
      key.push_back(static_cast<uint32_t>(segment_begins_.size()) + 1000000);
      const auto [node, is_new] = node_slots_.try_emplace(key, 0);
      if (is_new) {
        if (scratch_.empty()) AddScratchBlock();
        node->second = scratch_.back();
        scratch_.pop_back();
        Store(path[depth - 1], node->second);
      }
      row.ancestors.push_back(node->second);
    }
    AddRow(row);
  }

  void RoundQueriesToBf16() { queries_ = AttentionOperands::kBf16; }

  void Run(const AttentionOp& op, std::optional<int32_t> window) {
    Finish();
    op(Args(window));
  }

  AttentionArgs Args(std::optional<int32_t> window) {
    const int64_t num_columns = shape_.num_heads * shape_.head_dim;
    const auto num_rows = static_cast<int32_t>(rows_.size());
    return {.q = {q_.data(), DType::kF32, Shape(num_rows, num_columns)},
            .batch = {.num_rows = num_rows,
                      .num_segments = static_cast<int32_t>(segment_begins_.size()) - 1,
                      .positions = positions_.data(),
                      .chain_lens = chain_lens_.data(),
                      .ancestor_begins = ancestor_begins_.data(),
                      .ancestor_slots = ancestor_slots_.data(),
                      .segment_begins = segment_begins_.data(),
                      .block_table_begins = block_table_begins_.data(),
                      .block_tables = block_tables_.data()},
            .kv = kv_,
            .layer = 1,
            .window = window,
            .window_origins = shape_.has_window_origins ? window_origins_.data() : nullptr,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
            .cap = shape_.cap,
            .sinks = shape_.has_sinks ? sinks_.data() : nullptr,
            .out = {out_.data(), DType::kBF16, Shape(num_rows, num_columns)}};
  }

  std::vector<uint16_t> OutputOfRow(size_t row) const {
    const size_t num_columns = shape_.num_heads * shape_.head_dim;
    return {out_.begin() + row * num_columns, out_.begin() + (row + 1) * num_columns};
  }
  const std::vector<uint16_t>& output() const { return out_; }
  size_t num_rows() const { return rows_.size(); }

 private:
  struct Row {
    uint32_t token;
    int32_t position;
    int32_t chain_len;
    std::vector<int32_t> ancestors;
  };

  int32_t TakeBlock() {
    const int32_t block = free_blocks_.back();
    free_blocks_.pop_back();
    return block;
  }

  void AddScratchBlock() {
    const int32_t block = TakeBlock();
    for (int32_t i = 0; i < kKvBlockSize; ++i) scratch_.push_back(block * kKvBlockSize + (i * 7) % kKvBlockSize);
  }

  void Store(uint32_t token, int32_t slot) {
    for (int32_t part = 0; part < 2; ++part) {
      for (int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        std::vector<float> values;
        for (int32_t d = 0; d < shape_.head_dim; ++d) values.push_back(StoredElement(elements_, token, part, head, d));
        if (kv_.has_scales()) {
          uint8_t* codes = kv_.elements(1, part, slot, head);
          *kv_.scale(1, part, slot, head) = kernels::QuantizeKv(kv_.dtype, values.data(), shape_.head_dim, codes);
          continue;
        }
        if (shape_.rounded_from.has_value()) RoundAsCodes(*shape_.rounded_from, values);
        for (int32_t d = 0; d < shape_.head_dim; ++d) {
          reference::CacheElement(kv_, 1, part, slot, head, d) = Bf16FromFloat(values[d]);
        }
      }
    }
  }

  static void RoundAsCodes(kernels::KvCacheDtype dtype, std::vector<float>& values) {
    std::vector<uint8_t> codes(values.size());
    const float scale = kernels::QuantizeKv(dtype, values.data(), static_cast<int64_t>(values.size()), codes.data());
    for (size_t d = 0; d < values.size(); ++d) {
      const bool is_int8 = dtype == kernels::KvCacheDtype::kInt8;
      values[d] = scale * (is_int8 ? static_cast<int8_t>(codes[d]) : kernels::FloatFromE4m3(codes[d]));
    }
  }

  void AddRow(Row row) { rows_.push_back(std::move(row)); }

  void Finish() {
    segment_begins_.push_back(static_cast<int32_t>(rows_.size()));
    block_table_begins_.push_back(static_cast<int32_t>(block_tables_.size()));
    ancestor_begins_ = {0};
    for (const Row& row : rows_) {
      positions_.push_back(row.position);
      window_origins_.push_back(row.position / 8 * 8 - 1);
      chain_lens_.push_back(row.chain_len);
      ancestor_slots_.insert(ancestor_slots_.end(), row.ancestors.begin(), row.ancestors.end());
      ancestor_begins_.push_back(static_cast<int32_t>(ancestor_slots_.size()));
      for (int32_t head = 0; head < shape_.num_heads; ++head) {
        for (int32_t d = 0; d < shape_.head_dim; ++d) {
          const float q = TokenElement(row.token, 2, head, d);
          q_.push_back(queries_ == AttentionOperands::kBf16 ? FloatFromBf16(Bf16FromFloat(q)) : q);
        }
      }
    }
    out_.assign(q_.size(), 0);
  }

  HeadShape shape_;
  Elements elements_;
  AttentionOperands queries_ = AttentionOperands::kF32;
  KvCacheView kv_;
  std::vector<uint16_t> cache_;
  std::vector<int32_t> free_blocks_, scratch_;
  std::vector<uint32_t> chain_;
  std::map<std::vector<uint32_t>, int32_t> node_slots_;
  std::vector<Row> rows_;
  std::vector<int32_t> positions_, window_origins_, chain_lens_, ancestor_begins_, ancestor_slots_;
  std::vector<int32_t> segment_begins_, block_table_begins_, block_tables_;
  std::vector<float> q_;
  std::vector<float> sinks_;
  std::vector<uint16_t> out_;
};

std::vector<uint32_t> Tokens(int32_t count, uint32_t first = 0) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A batch with a chunk of the chain, a tree below it, a chain of guesses below an earlier token, and other sequences.
AttentionBatch MixedBatch(HeadShape shape, int32_t num_tokens, uint32_t layout_seed) {
  AttentionBatch batch(shape, Elements::kPlain, num_tokens / kKvBlockSize + 40, layout_seed);
  batch.AddSegment(Tokens(num_tokens));
  for (int32_t position = std::max(0, num_tokens - 21); position < num_tokens; ++position) batch.AddChainRow(position);
  batch.AddTreeRow(num_tokens, {900});
  batch.AddTreeRow(num_tokens, {900, 901});
  batch.AddTreeRow(num_tokens, {900, 902});
  for (int32_t depth = 1; depth <= 4; ++depth) batch.AddTreeRow(num_tokens / 2, Tokens(depth, 950));
  batch.AddTreeRow(num_tokens, {900, 901, 903});
  batch.AddTreeRow(num_tokens, {904});
  batch.AddSegment(Tokens(37, 5000));
  batch.AddChainRow(36);
  batch.AddSegment(Tokens(3, 6000));
  for (int32_t position = 0; position < 3; ++position) batch.AddChainRow(position);
  return batch;
}

// Returns the output of the last of `tokens` as a single chain row.
std::vector<uint16_t> LoneRow(HeadShape shape, const std::vector<uint32_t>& tokens, std::optional<int32_t> window,
                              const AttentionOp& op) {
  AttentionBatch batch(shape, Elements::kCancelling, static_cast<int32_t>(tokens.size()) / kKvBlockSize + 1, 0);
  batch.AddSegment(tokens);
  batch.AddChainRow(static_cast<int32_t>(tokens.size()) - 1);
  batch.Run(op, window);
  return batch.OutputOfRow(0);
}

}  // namespace

void ExpectAttentionMatchesTheReference(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                        const AttentionOp& op, AttentionOperands operands) {
  AttentionBatch batch = MixedBatch(shape, num_tokens, 9);
  const bool is_bf16 = operands == AttentionOperands::kBf16;
  if (is_bf16) batch.RoundQueriesToBf16();  // so that a second rounding changes nothing
  batch.Run(op, window);
  const std::vector<double> expected = reference::Attention(batch.Args(window));
  // |q| <= 1, |k| <= 2, |v| <= 1. A score's error is D u times the sum of |q k| scale, at most D 2 / sqrt(D). The error
  // enters a weight as a factor, twice with the maximum's error. Then n terms of at most 1 are added, and the sum is
  // rounded to bf16. The sums of matrix units drop bits that f32 would round, so u is four times as large. A weight
  // rounded to bf16 is off by 2^-8 of itself. It moves the mean by this part of its distance from the mean, at most 2.
  const double unit = is_bf16 ? 0x1p-22 : 0x1p-24;
  const double score_error = shape.head_dim * unit * 2 * std::sqrt(shape.head_dim);
  const int32_t num_terms = std::max(num_tokens + 3, 37) + 10;  // of the longest row, with its surroundings
  const double tolerance = 2 * score_error + 2 * num_terms * unit + (is_bf16 ? 2 * 0x1p-8 : 0);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double rounding = 0x1p-8 * std::abs(expected[i]);
    ASSERT_NEAR(FloatFromBf16(batch.output()[i]), expected[i], tolerance + rounding)
        << "D " << shape.head_dim << " tokens " << num_tokens << " element " << i;
  }
}

void ExpectAttentionRoundsQueriesToBf16(const HeadShape& shape, int32_t num_tokens, const AttentionOp& op) {
  AttentionBatch plain = MixedBatch(shape, num_tokens, 9), rounded = MixedBatch(shape, num_tokens, 9);
  rounded.RoundQueriesToBf16();
  plain.Run(op, std::nullopt);
  rounded.Run(op, std::nullopt);
  ASSERT_EQ(plain.output(), rounded.output());
}

void ExpectAttentionReadsCodesAsBf16(HeadShape shape, int32_t num_tokens, std::optional<int32_t> window,
                                     const AttentionOp& op) {
  AttentionBatch codes = MixedBatch(shape, num_tokens, 9);
  codes.Run(op, window);
  shape.rounded_from = std::exchange(shape.kv_dtype, kernels::KvCacheDtype::kBf16);
  AttentionBatch values = MixedBatch(shape, num_tokens, 9);
  values.Run(op, window);
  ASSERT_EQ(codes.output(), values.output()) << "D " << shape.head_dim << " tokens " << num_tokens;
}

void ExpectAttentionIsRowInvariant(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                   const AttentionOp& op) {
  SCOPED_TRACE(::testing::Message() << "D " << shape.head_dim << " tokens " << num_tokens << " window "
                                    << window.value_or(0));
  std::map<std::vector<uint32_t>, std::vector<uint16_t>> lone_rows;
  const auto lone_row = [&](const std::vector<uint32_t>& tokens) -> const std::vector<uint16_t>& {
    const auto [entry, is_new] = lone_rows.try_emplace(tokens);
    if (is_new) entry->second = LoneRow(shape, tokens, window, op);
    return entry->second;
  };
  // Prompt chunks of 1, 2, 3, 5, ... rows, blocks anywhere, other sequences around.
  for (int32_t chunk = 1; chunk <= num_tokens; chunk = chunk * 2 + 1) {
    AttentionBatch batch(shape, Elements::kCancelling, num_tokens / kKvBlockSize + 40, 10 + chunk);
    batch.AddSegment(Tokens(70, 7000));
    for (int32_t position = 60; position < 70; ++position) batch.AddChainRow(position);
    batch.AddSegment(Tokens(num_tokens));
    for (int32_t position = num_tokens - chunk; position < num_tokens; ++position) batch.AddChainRow(position);
    batch.AddSegment(Tokens(20, 8000));
    batch.AddTreeRow(20, {8020});
    batch.Run(op, window);
    for (int32_t i = 0; i < chunk; i += std::max(1, chunk / 5)) {
      const std::vector<uint32_t> seen = Tokens(num_tokens - chunk + i + 1);
      ASSERT_EQ(batch.OutputOfRow(10 + i), lone_row(seen)) << "chunk " << chunk << " row " << i;
    }
  }
  // The same tokens as the deepest path of a tree, with siblings and other branches between them.
  for (int32_t depth = 1; depth <= std::min(num_tokens, 40); depth = depth * 2 + 1) {
    const int32_t chain_len = num_tokens - depth;
    AttentionBatch batch(shape, Elements::kCancelling, num_tokens / kKvBlockSize + 70, 20 + depth);
    batch.AddSegment(Tokens(chain_len));
    for (int32_t position = std::max(0, chain_len - 2); position < chain_len; ++position) batch.AddChainRow(position);
    const size_t first = batch.num_rows();
    for (int32_t d = 1; d <= depth; ++d) {
      const std::vector<uint32_t> path = Tokens(d, chain_len);
      std::vector<uint32_t> sibling = path;
      sibling.back() += 4000;
      std::vector<uint32_t> branch = Tokens(d, 3000);
      batch.AddTreeRow(chain_len, branch);
      batch.AddTreeRow(chain_len, path);
      batch.AddTreeRow(chain_len, sibling);
    }
    batch.Run(op, window);
    for (int32_t d = 1; d <= depth; ++d) {
      const std::vector<uint32_t> seen = Tokens(chain_len + d);
      ASSERT_EQ(batch.OutputOfRow(first + 3 * (d - 1) + 1), lone_row(seen)) << "depth " << d << " of " << depth;
      std::vector<uint32_t> sibling = seen;
      sibling.back() += 4000;
      ASSERT_EQ(batch.OutputOfRow(first + 3 * (d - 1) + 2), lone_row(sibling)) << "sibling at depth " << d;
    }
  }
}

void ExpectAttentionSeesALongPathAsAChain(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                          const AttentionOp& op) {
  constexpr int32_t kChainLen = 5;
  AttentionBatch batch(shape, Elements::kCancelling, num_tokens / kKvBlockSize + 2, 30);
  batch.AddSegment(Tokens(kChainLen));
  batch.AddChainRow(kChainLen - 1);
  batch.AddTreeRow(kChainLen, Tokens(num_tokens - kChainLen, kChainLen));
  batch.Run(op, window);
  ASSERT_EQ(batch.OutputOfRow(1), LoneRow(shape, Tokens(num_tokens), window, op));
}

void ExpectAttentionHidesNonFiniteV(const HeadShape& shape, std::optional<int32_t> window, const AttentionOp& op) {
  // Some tokens in the middle of the chunk have V that is not finite. A window may exclude them later. Some nodes of
  // the tree have such V too.
  constexpr int32_t kChainLen = 92, kChunk = 24, kFirst = 75, kLast = 77;
  std::vector<uint32_t> chain = Tokens(kChainLen);
  for (int32_t position = kFirst; position <= kLast; ++position) chain[position] += kFirstNonFinite;
  const std::vector<std::vector<uint32_t>> paths = {
      {900}, {kFirstNonFinite + 900}, {900, kFirstNonFinite + 901}, {900, 902}, {900, 902, 903}};
  AttentionBatch batch(shape, Elements::kCancelling, kChainLen / kKvBlockSize + 40, 40);
  batch.AddSegment(chain);
  std::vector<std::vector<uint32_t>> tokens;  // per row
  for (int32_t position = kChainLen - kChunk; position < kChainLen; ++position) {
    batch.AddChainRow(position);
    tokens.emplace_back(chain.begin(), chain.begin() + position + 1);
  }
  for (const std::vector<uint32_t>& path : paths) {
    batch.AddTreeRow(kFirst, path);  // below tokens with finite V only
    tokens.emplace_back(chain.begin(), chain.begin() + kFirst);
    tokens.back().insert(tokens.back().end(), path.begin(), path.end());
  }
  batch.Run(op, window);
  for (size_t row = 0; row < tokens.size(); ++row) {
    const size_t num_seen = std::min<size_t>(window.value_or(INT32_MAX), tokens[row].size());
    if (std::all_of(tokens[row].end() - static_cast<ptrdiff_t>(num_seen), tokens[row].end(),
                    [](uint32_t token) { return token < kFirstNonFinite; })) {
      ASSERT_EQ(batch.OutputOfRow(row), LoneRow(shape, tokens[row], window, op)) << "row " << row;
    } else {
      for (const uint16_t element : batch.OutputOfRow(row)) {
        ASSERT_FALSE(std::isfinite(FloatFromBf16(element))) << "row " << row;
      }
    }
  }
}

}  // namespace foretoken::testing
