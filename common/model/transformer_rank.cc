// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer_rank.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/model/config/rope.h"
#include "kernels/check.h"

namespace foretoken::model {

namespace {

// Enough space for the batches of recorded passes with any contexts: if the memory grew, recordings would become
// invalid.
size_t RecordedBatchIntegers(const kernels::Recorder* recorder, const TransformerOptions& options) {
  if (recorder == nullptr) return 0;
  const size_t num_rows = recorder->row_counts().back();
  const size_t blocks_per_row = options.max_positions / kernels::kKvBlockSize + 1;
  return num_rows * (8 + num_rows + blocks_per_row);
}

// The number of segments to record for a batch. Attention launches blocks for each segment, so a recording has space
// for the most segments that its rows can have only if the batch has nearly as many. It includes the padding segment,
// also if there are no padding rows.
int32_t RecordedSegments(const ForwardBatch& batch, int32_t num_rows) {
  const auto num_segments = static_cast<uint32_t>(batch.num_segments() + 1);
  return std::min(static_cast<int32_t>(std::bit_ceil(num_segments)), num_rows);
}

// Whether more happens to what attention and MLP add to the residual stream than the addition.
bool AddsInTwoSteps(const ModelConfig& config) { return config.post_norms || config.residual_multiplier != 1; }

}  // namespace

using kernels::DType;
using kernels::OutputMode;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

TransformerRank::TransformerRank(const ModelConfig& config, ModelWeights weights, const RankPlace& place,
                                 const TransformerOptions& options)
    : shard_(place.shard()),
      config_(RankConfig(config, shard_.num_ranks)),
      weights_(std::move(weights)),
      backend_(*place.backend),
      communicator_(place.communicator),
      recorder_(communicator_ == nullptr || communicator_->is_recordable() ? backend_.recorder() : nullptr),
      options_(options),
      product_tuning_(TuneProducts()),
      batch_(backend_, RecordedBatchIntegers(recorder_, options)) {
  rotation_ = MakeRotation(config_.rope);
  if (config_.sliding_rope) sliding_rotation_ = MakeRotation(*config_.sliding_rope);
  const auto matrix = [&](DType dtype, int64_t rows, int64_t cols) {
    return Tensor(backend_, dtype, Shape(rows, cols));
  };
  const int64_t rows = options.max_rows;
  const int64_t q_size = config_.num_heads * config_.head_dim;
  hidden_ = matrix(DType::kF32, rows, config_.hidden_size);
  normed_ = matrix(DType::kBF16, rows, config_.hidden_size);
  qkv_ = matrix(DType::kF32, rows, q_size + 2 * config_.num_kv_heads * config_.head_dim);
  q_ = matrix(DType::kF32, rows, q_size);
  if (config_.whole_qk_norm) mean_squares_ = matrix(DType::kF32, shard_.num_ranks, 2 * rows);
  attention_ = matrix(DType::kBF16, rows, q_size);
  const int64_t mlp_size = std::max(config_.intermediate_size, config_.experts.shared_size);
  gate_up_ = matrix(DType::kF32, rows, 2 * mlp_size);
  ffn_ = matrix(DType::kBF16, rows, mlp_size);
  if (shard_.rank == 0) logits_ = matrix(DType::kF32, options.max_logit_rows, config_.vocab_size);
  const int64_t num_experts = config_.experts.num_experts;
  if (num_experts > 0) {
    scores_ = matrix(DType::kF32, rows, num_experts);
    PrepareExperts();
  }
  if (communicator_ != nullptr || AddsInTwoSteps(config_) || num_experts > 0) {
    hidden_pieces_ = matrix(DType::kF32, shard_.num_ranks, rows * config_.hidden_size);
  }
  if (communicator_ == nullptr) return;
  for (int32_t rank = 0; rank < shard_.num_ranks; ++rank) {
    logit_widths_.push_back(ShareOf(config_.vocab_size, {.rank = rank, .num_ranks = shard_.num_ranks}).size());
  }
  logit_pieces_ = matrix(DType::kF32, shard_.rank == 0 ? shard_.num_ranks : 1,
                         options.max_logit_rows * std::ranges::max(logit_widths_));
}

void TransformerRank::PrepareExperts() {
  ExpertStore* const store = weights_.experts.get();
  experts_.resize(weights_.layers.size());
  for (size_t layer = 0; layer < experts_.size(); ++layer) {
    if (weights_.layers[layer].router == nullptr) continue;
    const auto expert = [store, layer_idx = static_cast<int32_t>(layer)](int32_t expert_idx) {
      return store->Get(layer_idx, expert_idx);
    };
    experts_[layer] = backend_.PrepareExperts(static_cast<int32_t>(config_.experts.num_experts), expert);
  }
}

TransformerRank::Rotation TransformerRank::MakeRotation(const RopeConfig& rope) const {
  // Padding rows stand at positions below the pass's row count.
  const int32_t num_padded_rows = recorder_ == nullptr ? 0 : recorder_->row_counts().back();
  const int64_t rotary_dim = config_.rotary_dim.value_or(config_.head_dim);
  const RopeTables tables = MakeRopeTables(ComputeRopeFrequencies(rope, rotary_dim, options_.max_positions),
                                           std::max(options_.max_positions, num_padded_rows));
  return {.cos = Tensor::FromHost(backend_, tables.cos), .sin = Tensor::FromHost(backend_, tables.sin)};
}

const TransformerRank::Rotation& TransformerRank::RotationOf(int32_t layer_idx) const {
  return config_.sliding_rope && config_.sliding_windows[layer_idx] ? sliding_rotation_ : rotation_;
}

std::string TransformerRank::TuneProducts() const {
  std::vector<kernels::ProductUse> uses;
  for (const LayerWeights& layer : weights_.layers) {
    for (const auto* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &layer.router}) {
      if (*weight != nullptr) uses.push_back({.weight = weight->get(), .max_rows = options_.max_rows});
    }
  }
  uses.push_back({.weight = &weights_.head_or_embed(), .max_rows = options_.max_logit_rows});
  return backend_.TuneProducts(uses);
}

kernels::KvCacheView TransformerRank::KvShape(int32_t num_blocks) const {
  return {.data = nullptr,
          .num_layers = static_cast<int32_t>(config_.num_layers),
          // Padding rows of recorded passes have a block of their own, the last.
          .num_blocks = num_blocks + (recorder_ != nullptr ? 1 : 0),
          .num_kv_heads = static_cast<int32_t>(config_.num_kv_heads),
          .head_dim = static_cast<int32_t>(config_.head_dim),
          .dtype = backend_.kv_cache_dtype()};
}

kernels::ConstTensorView TransformerRank::Forward(const ForwardBatch& batch, const kernels::KvCacheView& kv) {
  const auto num_logit_rows = static_cast<int32_t>(batch.logit_rows.size());
  FT_CHECK(batch.num_rows() > 0 && batch.num_rows() <= options_.max_rows);
  FT_CHECK(num_logit_rows <= options_.max_logit_rows);
  FT_CHECK(*std::max_element(batch.positions.begin(), batch.positions.end()) < options_.max_positions);
  if (const std::optional<int32_t> num_rows = RecordedRows(batch); num_rows.has_value()) {
    const BatchPadding padding = {
        .num_rows = *num_rows, .num_segments = RecordedSegments(batch, *num_rows), .spare_block = kv.num_blocks - 1};
    EnqueueRecorded({.batch = batch_.Upload(PadBatch(batch, padding)), .kv = kv, .captured_layers = captured_layers_});
  } else {
    Enqueue({.batch = batch_.Upload(batch), .kv = kv, .captured_layers = captured_layers_});
  }
  return {logits_.view().data, DType::kF32, Shape(num_logit_rows, config_.vocab_size)};
}

// The row count of the recorded pass for this batch; unset: a recording is not worth it.
std::optional<int32_t> TransformerRank::RecordedRows(const ForwardBatch& batch) const {
  if (recorder_ == nullptr) return std::nullopt;
  for (const int32_t num_rows : recorder_->row_counts()) {
    if (num_rows > std::min(options_.max_rows, options_.max_logit_rows)) break;
    if (num_rows >= batch.num_rows()) return num_rows;
  }
  return std::nullopt;
}

void TransformerRank::EnqueueRecorded(const Pass& pass) {
  auto known = std::ranges::find(recorded_, pass, &RecordedPass::pass);
  if (known == recorded_.end()) {  // the first run is not recorded, because it loads kernels
    recorded_.push_back({.pass = pass, .recording = nullptr});
    return Enqueue(pass);
  }
  if (known->recording == nullptr) known->recording = recorder_->Record([&] { Enqueue(pass); });
  known->recording->Enqueue();
}

void TransformerRank::Enqueue(const Pass& pass) {
  const kernels::BatchView& batch = pass.batch.batch;
  EmbedTokens(batch);
  KeepResidual(0, batch.num_rows);
  for (int32_t layer_idx = 0; layer_idx < config_.num_layers; ++layer_idx) {
    RunLayer(layer_idx, batch, pass.kv);
    KeepResidual(layer_idx + 1, batch.num_rows);
  }
  if (pass.batch.num_logit_rows > 0) ComputeLogits(pass.batch);
}

void TransformerRank::Capture(std::span<const int32_t> layers) {
  if (std::ranges::equal(layers, captured_layers_)) return;
  backend_.Synchronize();  // a pass in flight may still write what is freed here
  captured_layers_.assign(layers.begin(), layers.end());
  std::erase_if(recorded_, [&](const RecordedPass& known) { return known.pass.captured_layers != captured_layers_; });
  if (shard_.rank != 0) return;
  std::erase_if(captured_, [&](const auto& entry) { return std::ranges::count(layers, entry.first) == 0; });
  for (const int32_t k : layers) {
    FT_CHECK(k >= 0 && k <= config_.num_layers);
    if (captured_.contains(k)) continue;
    captured_.emplace(k, Tensor(backend_, DType::kF32, Shape(options_.max_rows, config_.hidden_size)));
  }
}

kernels::ConstTensorView TransformerRank::captured(int32_t k) const { return captured_.at(k).view(); }

void TransformerRank::KeepResidual(int32_t k, int32_t num_rows) {
  const auto kept = captured_.find(k);
  if (kept == captured_.end()) return;
  const kernels::TensorView residual = hidden_.rows(num_rows);
  backend_.Copy(kept->second.view().data, residual.data, residual.num_bytes(), kernels::CopyKind::kOnDevice);
}

void TransformerRank::EmbedTokens(const kernels::BatchView& batch) {
  const int32_t T = batch.num_rows;
  const auto multiplier = static_cast<float>(config_.embedding_multiplier);
  const TensorView hidden = hidden_.rows(T);
  if (communicator_ == nullptr) {
    backend_.Embed({.weight = weights_.embed.get(), .token_ids = batch.token_ids, .out = hidden});
    if (multiplier == 1) return;
    const kernels::ConstTensorView piece{hidden.data, DType::kF32, Shape(1, T, config_.hidden_size)};
    return backend_.SumRanks({.pieces = piece, .scale = multiplier, .out = hidden});
  }
  // One rank has the token's row; the others add zeros.
  backend_.Embed({.weight = weights_.embed.get(),
                  .token_ids = batch.token_ids,
                  .first_token_id = ShareOf(config_.vocab_size, shard_).begin,
                  .out = Piece(T)});
  SumPieces(T, {.scale = multiplier, .mode = OutputMode::kStore, .out = hidden});
}

// normed = the norm of the residual stream, or the stream itself if there is no gain.
void TransformerRank::NormInput(const Tensor& gain, int32_t num_rows) {
  const TensorView hidden = hidden_.rows(num_rows), normed = normed_.rows(num_rows);
  if (gain.empty()) return backend_.CopyRows({.x = hidden, .num_rows = num_rows, .out = normed});
  backend_.RmsNorm({.x = hidden, .gain = gain.f32(), .eps = static_cast<float>(config_.rms_norm_eps), .out = normed});
}

// Every rank has a part of the heads, and all parts have the same size. [T, 2], or null if no norm needs it.
const float* TransformerRank::QkMeanSquares(int32_t num_rows) {
  if (!config_.whole_qk_norm) return nullptr;
  float* const pieces = mean_squares_.view().as<float>();
  const Shape shape(num_rows, 2);
  const TensorView own{pieces + shard_.rank * shape.num_elements(), DType::kF32, shape};
  const int64_t q_size = config_.num_heads * config_.head_dim, k_size = config_.num_kv_heads * config_.head_dim;
  backend_.MeanSquares({.x = qkv_.rows(num_rows), .widths = {q_size, k_size}, .out = own});
  if (communicator_ == nullptr) return pieces;
  communicator_->AllGather(pieces, own.num_bytes());
  backend_.SumRanks({.pieces = {pieces, DType::kF32, Shape(shard_.num_ranks, num_rows, 2)},
                     .scale = 1 / static_cast<float>(shard_.num_ranks),
                     .out = {pieces, DType::kF32, shape}});
  return pieces;
}

void TransformerRank::RunLayer(int32_t layer_idx, const kernels::BatchView& batch, const kernels::KvCacheView& kv) {
  const LayerWeights& layer = weights_.layers[layer_idx];
  const Rotation& rotation = RotationOf(layer_idx);
  const int32_t T = batch.num_rows;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const double scale = config_.attention_scale.value_or(1 / std::sqrt(static_cast<double>(config_.head_dim)));

  NormInput(layer.input_norm, T);
  backend_.MatMul({.x = normed_.rows(T), .weight = layer.qkv.get(), .bias = layer.qkv_bias.f32(), .out = qkv_.rows(T)});
  backend_.RopeStoreKv({.qkv = qkv_.rows(T),
                        .q_gain = layer.q_norm.f32(),
                        .k_gain = layer.k_norm.f32(),
                        .mean_squares = QkMeanSquares(T),
                        .eps = eps,
                        .rotary_dim = static_cast<int32_t>(config_.turned_dims(layer_idx)),
                        .cos = rotation.cos.f32(),
                        .sin = rotation.sin.f32(),
                        .batch = batch,
                        .kv = kv,
                        .layer = layer_idx,
                        .q = q_.rows(T)});
  backend_.Attention({.q = q_.rows(T),
                      .batch = batch,
                      .kv = kv,
                      .layer = layer_idx,
                      .window = config_.sliding_windows[layer_idx],
                      .scale = static_cast<float>(scale),
                      .cap = config_.attention_cap,
                      .sinks = layer.sinks.f32(),
                      .out = attention_.rows(T)});
  AddProduct(attention_.rows(T), *layer.o, layer.o_bias.f32(), layer.attention_post_norm.f32());

  NormInput(layer.mlp_norm, T);
  if (layer.router != nullptr) RunExperts(layer_idx, T);
  if (layer.gate_up != nullptr) RunMlp(layer_idx, T);
}

void TransformerRank::RunMlp(int32_t layer_idx, int32_t num_rows) {
  const LayerWeights& layer = weights_.layers[layer_idx];
  const int64_t mlp_size = config_.mlp_size(layer_idx);
  const TensorView gate_up{gate_up_.view().data, DType::kF32, Shape(num_rows, 2 * mlp_size)};
  const TensorView ffn{ffn_.view().data, DType::kBF16, Shape(num_rows, mlp_size)};
  backend_.MatMul(
      {.x = normed_.rows(num_rows), .weight = layer.gate_up.get(), .bias = layer.gate_up_bias.f32(), .out = gate_up});
  backend_.Glu({.gate_up = gate_up, .gating = config_.gating, .out = ffn});
  AddProduct(ffn, *layer.down, layer.down_bias.f32(), layer.mlp_post_norm.f32());
}

// Every rank has a part of each expert, and all choose alike.
void TransformerRank::RunExperts(int32_t layer_idx, int32_t num_rows) {
  const LayerWeights& layer = weights_.layers[layer_idx];
  const TensorView normed = normed_.rows(num_rows), scores = scores_.rows(num_rows);
  backend_.MatMul({.x = normed, .weight = layer.router.get(), .bias = layer.router_bias.f32(), .out = scores});
  backend_.Experts({.x = normed,
                    .scores = scores,
                    .experts = experts_[layer_idx].get(),
                    .num_chosen = static_cast<int32_t>(config_.experts.num_chosen),
                    .bias = layer.choice_bias.f32(),
                    .weighting = config_.experts.weighting,
                    .scale = static_cast<float>(config_.experts.scale),
                    .gating = config_.gating,
                    .out = Piece(num_rows)});
  AddPieces(num_rows, layer.mlp_post_norm.f32());
}

// hidden += multiplier * (x weight^T + bias), or hidden += the norm of x weight^T + bias, if there is a gain. Every
// rank has a part of the inputs.
void TransformerRank::AddProduct(const TensorView& x, const kernels::Weight& weight, const float* bias,
                                 const float* post_gain) {
  const auto T = static_cast<int32_t>(x.shape[0]);
  if (communicator_ == nullptr && !AddsInTwoSteps(config_)) {
    return backend_.MatMul({.x = x, .weight = &weight, .bias = bias, .mode = OutputMode::kAdd, .out = hidden_.rows(T)});
  }
  backend_.MatMul({.x = x, .weight = &weight, .bias = bias, .out = Piece(T)});
  AddPieces(T, post_gain);
}

// hidden += multiplier * the sum of the ranks' pieces, or hidden += the sum's norm, if there is a gain.
void TransformerRank::AddPieces(int32_t num_rows, const float* post_gain) {
  const TensorView hidden = hidden_.rows(num_rows);
  if (post_gain == nullptr) {
    const auto multiplier = static_cast<float>(config_.residual_multiplier);
    return SumPieces(num_rows, {.scale = multiplier, .mode = OutputMode::kAdd, .out = hidden});
  }
  const TensorView sum = PieceOf(0, num_rows);
  SumPieces(num_rows, {.mode = OutputMode::kStore, .out = sum});
  backend_.RmsNorm({.x = sum,
                    .gain = post_gain,
                    .eps = static_cast<float>(config_.rms_norm_eps),
                    .mode = OutputMode::kAdd,
                    .out = hidden});
}

// The place of a rank's part of a sum over ranks: [T, E].
TensorView TransformerRank::PieceOf(int32_t rank, int32_t num_rows) const {
  const int64_t elements = num_rows * config_.hidden_size;
  return {hidden_pieces_.view().as<float>() + rank * elements, DType::kF32, Shape(num_rows, config_.hidden_size)};
}

// Adds the ranks' pieces. `sum` has everything but the pieces; its `out` may be the first of them.
void TransformerRank::SumPieces(int32_t num_rows, kernels::SumRanksArgs sum) {
  sum.pieces = {hidden_pieces_.view().data, DType::kF32, Shape(shard_.num_ranks, num_rows, config_.hidden_size)};
  if (communicator_ != nullptr) {
    communicator_->AllGather(PieceOf(0, num_rows).data, Piece(num_rows).num_bytes());
  } else if (sum.out.data == sum.pieces.data && sum.scale == 1) {
    return;  // is the sum already
  }
  backend_.SumRanks(sum);
}

void TransformerRank::ComputeLogits(const DeviceBatch::View& batch) {
  const kernels::TensorView normed = normed_.rows(batch.num_logit_rows);
  backend_.RmsNorm({.x = hidden_.view(),
                    .rows = batch.logit_rows,
                    .gain = weights_.final_norm.f32(),
                    .eps = static_cast<float>(config_.rms_norm_eps),
                    .out = normed});
  const TensorView logits{logits_.view().data, DType::kF32, Shape(batch.num_logit_rows, config_.vocab_size)};
  if (communicator_ == nullptr) {
    backend_.MatMul({.x = normed, .weight = &weights_.head_or_embed(), .out = logits});
  } else {
    GatherLogits(normed, logits);
  }
  const auto multiplier = static_cast<float>(config_.logit_multiplier);
  if (shard_.rank != 0 || (multiplier == 1 && !config_.logit_cap)) return;
  backend_.CapLogits({.logits = logits, .scale = multiplier, .cap = config_.logit_cap});
}

void TransformerRank::GatherLogits(const kernels::ConstTensorView& normed, const kernels::TensorView& logits) {
  const int64_t num_rows = normed.shape[0];
  const int64_t piece_elements = num_rows * std::ranges::max(logit_widths_);
  float* const pieces = logit_pieces_.view().as<float>();  // this rank's piece comes first, on rank 0 too
  backend_.MatMul({.x = normed,
                   .weight = &weights_.head_or_embed(),
                   .out = {pieces, DType::kF32, Shape(num_rows, logit_widths_[shard_.rank])}});
  communicator_->GatherToFirst(pieces, piece_elements * sizeof(float));
  if (shard_.rank != 0) return;
  backend_.JoinColumns({.pieces = pieces, .piece_elements = piece_elements, .widths = logit_widths_, .out = logits});
}

}  // namespace foretoken::model
