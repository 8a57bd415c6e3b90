// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/block_draft.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::kKvBlockSize;
using kernels::Shape;
using kernels::TensorView;

// Places of lists in the backend's memory.
enum Place : int32_t { kLastSeen, kWindowOrigins, kFrom, kTo, kTokens, kNumPlaces };

int32_t SegmentOf(const model::ForwardBatch& batch, int32_t row) {
  const auto next = std::ranges::upper_bound(batch.segment_begins, row);
  return static_cast<int32_t>(next - batch.segment_begins.begin()) - 1;
}

void AppendBlockTable(const model::ForwardBatch& from, int32_t segment, model::ForwardBatch& to) {
  to.block_tables.insert(to.block_tables.end(), from.block_tables.begin() + from.block_table_begins[segment],
                         from.block_tables.begin() + from.block_table_begins[segment + 1]);
  to.block_table_begins.push_back(static_cast<int32_t>(to.block_tables.size()));
  to.segment_begins.push_back(to.num_rows());
}

// The segments of a pass that are rows of contexts. All rows of a segment are of one kind.
model::ForwardBatch ContextsOf(const DraftPass& pass) {
  const model::ForwardBatch& all = pass.batch;
  model::ForwardBatch contexts;
  for (int32_t segment = 0; segment < all.num_segments(); ++segment) {
    const int32_t begin = all.segment_begins[segment], end = all.segment_begins[segment + 1];
    if (!std::ranges::binary_search(pass.given_rows, begin)) continue;
    for (int32_t row = begin; row < end; ++row) {
      contexts.token_ids.push_back(all.token_ids[row]);
      contexts.positions.push_back(all.positions[row]);
      contexts.slots.push_back(all.slots[row]);
      contexts.chain_lens.push_back(all.chain_lens[row]);
      contexts.ancestor_begins.push_back(0);
    }
    AppendBlockTable(all, segment, contexts);
  }
  FT_CHECK(contexts.num_rows() == static_cast<int32_t>(pass.given_rows.size()));
  return contexts;
}

// Lets every row of blocks see its whole block.
void OpenBlocks(int32_t num_rows, model::ForwardBatch& batch) {
  batch.ancestor_slots.clear();
  batch.ancestor_begins = {0};
  for (int32_t row = 0; row < batch.num_rows(); ++row) {
    const auto block = batch.slots.begin() + row / num_rows * num_rows;
    batch.ancestor_slots.insert(batch.ancestor_slots.end(), block, block + num_rows);
    batch.ancestor_begins.push_back(static_cast<int32_t>(batch.ancestor_slots.size()));
  }
}

// The number of blocks whose logits are kept: at least as many as one pass computes.
int64_t NumKeptLogits(const BlockForm& form, const DraftModel::Limits& limits, int64_t draft_vocab_size) {
  const int64_t block_bytes = form.num_rows * draft_vocab_size * int64_t{sizeof(float)};
  const int64_t num_fitting = std::min<int64_t>(form.max_kept_logit_bytes / block_bytes, limits.num_blocks);
  return std::max<int64_t>(num_fitting, limits.max_rows / form.num_rows);
}

}  // namespace

BlockDraft::BlockDraft(std::unique_ptr<kernels::Backend> backend, const Limits& limits, const BlockForm& form,
                       DraftHeadParts head)
    : backend_(std::move(backend)),
      limits_(limits),
      form_(form),
      lm_head_(std::move(head.weight)),
      head_(
          head.token_ids, *backend_,
          {.vocab_size = limits.vocab_size, .draft_vocab_size = lm_head_->out_features(), .max_rows = limits.max_rows},
          head.form),
      kept_at_(static_cast<size_t>(limits.num_blocks) * kKvBlockSize, -1),
      kept_(*backend_, DType::kBF16, Shape(int64_t{limits.num_blocks} * form.num_guesses(), form.hidden_size)),
      logits_at_(static_cast<size_t>(limits.num_blocks), -1),
      logits_of_(static_cast<size_t>(NumKeptLogits(form, limits, lm_head_->out_features())), -1),
      kept_logits_(*backend_, DType::kF32,
                   Shape(static_cast<int64_t>(logits_of_.size()) * form.num_rows, lm_head_->out_features())),
      context_batch_(*backend_, 0),
      causal_batch_(*backend_, 0),
      open_batch_(*backend_, 0),
      lists_(*backend_, kNumPlaces, limits.max_rows),
      features_(*backend_, DType::kBF16, Shape(limits.max_rows, limits.feature_width)),
      outputs_(*backend_, DType::kBF16, Shape(limits.max_rows, form.hidden_size)) {
  FT_CHECK(form.num_rows <= limits.max_rows && form.num_guesses() > 0);
}

BlockLimits BlockDraft::LimitsOf(const Limits& limits, const BlockForm& form) {
  return {.max_rows = limits.max_rows,
          .max_positions = limits.max_positions + form.num_rows,
          .num_blocks = limits.num_blocks + (limits.max_rows + kKvBlockSize - 1) / kKvBlockSize};
}

int64_t BlockDraft::OutputBytes(const BlockForm& form) {
  constexpr int64_t kBf16 = 2;
  return (form.num_guesses() * form.hidden_size * kBf16 + kKvBlockSize - 1) / kKvBlockSize;
}

std::optional<DraftHead::Term> BlockDraft::LogitTerm(const TreeRows&) { return std::nullopt; }

ConstTensorView BlockDraft::Forward(const DraftPass& pass) {
  if (!pass.given_rows.empty()) ReadContextRows(pass);
  for (size_t i = 0; i < pass.predicted_rows.size(); ++i) {
    kept_at_[pass.batch.slots[pass.predicted_rows[i]]] = kept_at_[pass.parent_slots[i]];
  }
  std::vector<Root> roots;
  std::vector<TreeRow> tree_rows;
  std::vector<int32_t> token_ids, slots, parent_slots;
  for (size_t i = 0; i < pass.batch.logit_rows.size(); ++i) {
    const int32_t row = pass.batch.logit_rows[i], step = pass.steps[row], place = static_cast<int32_t>(i);
    token_ids.push_back(pass.batch.token_ids[row]);
    slots.push_back(pass.batch.slots[row]);
    if (step == 0) {
      parent_slots.push_back(-1);
      roots.push_back({.row = row, .place = place});
      continue;
    }
    parent_slots.push_back(pass.parent_slots[PlaceOf(pass.predicted_rows, row)]);
    tree_rows.push_back({.kept_at = kept_at_[pass.batch.slots[row]], .step = step, .place = place});
    FT_CHECK(step < form_.num_guesses() && tree_rows.back().kept_at >= 0);
  }
  const auto num_rows = static_cast<int64_t>(token_ids.size());
  if (num_rows == 0) return {.shape = Shape(0, limits_.vocab_size)};
  const bool has_logits = TakeKept(tree_rows);  // before new blocks overwrite them
  const size_t most = static_cast<size_t>(limits_.max_rows / form_.num_rows);
  for (size_t begin = 0; begin < roots.size(); begin += most) {
    GuessBlocks(pass, std::span(roots).subspan(begin, std::min(most, roots.size() - begin)));
  }
  const ConstTensorView outputs = outputs_.rows(num_rows);
  const std::optional<DraftHead::Term> term = LogitTerm({.outputs = outputs,
                                                         .token_ids = lists_.Upload(token_ids, kTokens),
                                                         .slots = slots,
                                                         .parent_slots = parent_slots});
  return has_logits ? head_.Complete(num_rows, term) : head_.Logits(outputs, *lm_head_, term);
}

bool BlockDraft::TakeKept(std::span<const TreeRow> rows) {
  if (rows.empty()) return true;
  std::vector<int32_t> from, to, logits_from;
  for (const TreeRow& row : rows) {
    from.push_back(row.kept_at * form_.num_guesses() + row.step);
    to.push_back(row.place);
    const int32_t logits_at = logits_at_[row.kept_at];
    if (logits_at >= 0) logits_from.push_back(logits_at * form_.num_rows + form_.first_guess + row.step);
  }
  CopyRows(kept_.view(), from, to, outputs_.view());
  if (logits_from.size() < from.size()) return false;
  CopyRows(kept_logits_.view(), logits_from, to, head_.drafted(limits_.max_rows));
  return true;
}

void BlockDraft::ReadContextRows(const DraftPass& pass) {
  const model::DeviceBatch::View view = context_batch_.Upload(ContextsOf(pass));
  backend_->Copy(features_.view().data, pass.given_features.data(), pass.given_features.size() * sizeof(uint16_t),
                 kernels::CopyKind::kToDevice);
  ReadContext(view.batch, features_.rows(view.batch.num_rows));
}

// Computes the roots' blocks. The first outputs are those of the roots' own rows; the others are kept for the rows
// below them.
void BlockDraft::GuessBlocks(const DraftPass& pass, std::span<const Root> roots) {
  const model::ForwardBatch& all = pass.batch;
  model::ForwardBatch batch;
  std::vector<int32_t> last_seen, window_origins, from, to, kept_from, kept_to, blocks_kept_at;
  std::vector<uint16_t> features;
  for (size_t i = 0; i < roots.size(); ++i) {
    const int32_t row = roots[i].row, first_row = batch.num_rows();
    const int32_t first_position = all.positions[row] + (form_.replaces_root ? 0 : 1);
    const int32_t first_slot = limits_.num_blocks * kKvBlockSize + first_row;
    for (int32_t j = 0; j < form_.num_rows; ++j) {
      batch.token_ids.push_back(j == 0 ? all.token_ids[row] : form_.mask_token_id);
      batch.positions.push_back(first_position + j);
      batch.slots.push_back(first_slot + j);
      batch.chain_lens.push_back(first_position);
      for (int32_t k = 0; k <= j; ++k) batch.ancestor_slots.push_back(first_slot + k);
      batch.ancestor_begins.push_back(static_cast<int32_t>(batch.ancestor_slots.size()));
      last_seen.push_back(first_position + form_.num_rows - 1);
      window_origins.push_back(form_.windows_from_context ? first_position - 1 : first_position + j);
    }
    AppendBlockTable(all, SegmentOf(all, row), batch);
    const auto begin = pass.given_features.begin() + PlaceOf(pass.given_rows, row) * limits_.feature_width;
    features.insert(features.end(), begin, begin + limits_.feature_width);

    from.push_back(first_row + form_.first_guess);
    to.push_back(roots[i].place);
    const int32_t kept_at = all.slots[row] / kKvBlockSize;
    kept_at_[all.slots[row]] = kept_at;
    blocks_kept_at.push_back(kept_at);
    // The last root of a K/V block is the one that trees grow from.
    const bool is_last = std::ranges::none_of(
        roots.subspan(i + 1), [&](const Root& later) { return all.slots[later.row] / kKvBlockSize == kept_at; });
    for (int32_t step = 0; is_last && step < form_.num_guesses(); ++step) {
      kept_from.push_back(first_row + form_.first_guess + step);
      kept_to.push_back(kept_at * form_.num_guesses() + step);
    }
  }
  Blocks blocks = {.root_features = features};
  const int32_t* const origins = lists_.Upload(window_origins, kWindowOrigins);
  blocks.causal = {.batch = causal_batch_.Upload(batch).batch, .sight = {.window_origins = origins}};
  OpenBlocks(form_.num_rows, batch);
  blocks.open = {.batch = open_batch_.Upload(batch).batch,
                 .sight = {.last_seen = lists_.Upload(last_seen, kLastSeen), .window_origins = origins}};
  const ConstTensorView outputs = RunBlocks(blocks);
  CopyRows(outputs, from, to, outputs_.view());
  CopyRows(outputs, kept_from, kept_to, kept_.view());
  const int32_t first_logits = KeepLogits(outputs, blocks_kept_at);
  for (int32_t& row : from) row += first_logits;
  CopyRows(kept_logits_.view(), from, to, head_.drafted(limits_.max_rows));
}

// Computes the logits of blocks and keeps them for the kept outputs that each block belongs to. Returns the first row.
int32_t BlockDraft::KeepLogits(const ConstTensorView& outputs, std::span<const int32_t> kept_at) {
  const auto num_blocks = static_cast<int32_t>(kept_at.size());
  if (next_place_ + num_blocks > static_cast<int32_t>(logits_of_.size())) next_place_ = 0;
  const int32_t first_row = next_place_ * form_.num_rows;
  for (const int32_t block : kept_at) {
    const int32_t evicted = std::exchange(logits_of_[next_place_], block);
    if (evicted >= 0) logits_at_[evicted] = -1;
    const int32_t replaced = std::exchange(logits_at_[block], next_place_++);
    if (replaced >= 0) logits_of_[replaced] = -1;
  }
  TensorView out = kept_logits_.view();
  out.data = out.as<float>() + int64_t{first_row} * out.shape[1];
  out.shape.dims[0] = outputs.shape[0];
  backend_->MatMul({.x = outputs, .weight = lm_head_.get(), .out = out});
  return first_row;
}

void BlockDraft::CopyRows(const ConstTensorView& x, std::span<const int32_t> from, std::span<const int32_t> to,
                          const TensorView& out) {
  backend_->CopyRows({.x = x,
                      .from = lists_.Upload(from, kFrom),
                      .to = lists_.Upload(to, kTo),
                      .num_rows = static_cast<int32_t>(to.size()),
                      .out = out});
}

void BlockDraft::Move(std::span<const kernels::KvMove> moves) {
  backend_->MoveKv({.kv = kv(), .moves = moves});
  std::vector<int32_t> kept_at;
  for (const kernels::KvMove& move : moves) kept_at.push_back(kept_at_[move.from_slot]);
  for (size_t i = 0; i < moves.size(); ++i) kept_at_[moves[i].to_slot] = kept_at[i];
}

}  // namespace foretoken::proposer
