// SPDX-License-Identifier: Apache-2.0
// The workloads of gpu_bench. Each is an object that is made once and run in every round: copies, one large matrix
// product, a model's steps and prefill, attention alone, experts alone, the draw alone. All use the Backend, so any
// device can run them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/transformer.h"
#include "tests/bench/host_work.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/random_model.h"

namespace foretoken::bench {

using kernels::Backend;
using kernels::CopyKind;
using kernels::DType;
using kernels::Shape;
using tensor::Tensor;

inline constexpr int kWallClock = 0;  // as a thread count of stopwatch.h

// The sizes of the workloads.
struct Sizes {
  model::ModelConfig model;
  int32_t context_tokens = 1024;
  int32_t prompt_tokens = 8192;
  int32_t max_rows = 2048;  // of one pass
  int32_t num_sequences = 16;
  int32_t attention_context = 32768;
  int32_t attention_batch = 8;
  int32_t attention_rows = 16;  // of each sequence's tree
  int32_t draw_rows = 64;
  size_t copy_bytes = size_t{4} << 30;
  int64_t matrix_size = 8192;
  int64_t expert_inputs = 2048;
  int64_t expert_width = 768;
};

// The seconds of one `work`, when several are enqueued before a wait.
inline double EnqueuedSeconds(Backend& backend, int count, const std::function<void()>& work) {
  backend.Synchronize();
  const double seconds = Seconds(kWallClock, [&] {
    for (int i = 0; i < count; ++i) work();
    backend.Synchronize();
  });
  return seconds / count;
}

// The seconds of one `work`, with a wait after each.
inline double AwaitedSeconds(Backend& backend, int count, const std::function<void()>& work) {
  return EnqueuedSeconds(backend, count, [&] {
    work();
    backend.Synchronize();
  });
}

inline std::vector<int32_t> Blocks(int32_t first, int32_t num_positions) {
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i * kernels::kKvBlockSize < num_positions; ++i) blocks.push_back(first + i);
  return blocks;
}

// A chain with a second child beside each of its nodes. A useful tree of this size is about as deep.
inline std::vector<int32_t> TreeParents(int32_t num_nodes) {
  std::vector<int32_t> parents;
  for (int32_t node = 0; node < num_nodes; ++node) parents.push_back(node < 2 ? -1 : (node - 2) / 2 * 2);
  return parents;
}

// --- bandwidth, matrix rate ------------------------------------------------------------------------------------------

// Bytes read and written per second.
class CopyBench {
 public:
  CopyBench(Backend& backend, size_t num_bytes)
      : backend_(backend),
        num_bytes_(num_bytes),
        from_(backend.Allocate(num_bytes)),
        to_(backend.Allocate(num_bytes)) {}

  double BytesPerSecond() {
    const auto copy = [&] { backend_.Copy(to_.get(), from_.get(), num_bytes_, CopyKind::kOnDevice); };
    return 2.0 * static_cast<double>(num_bytes_) / EnqueuedSeconds(backend_, 4, copy);
  }

 private:
  Backend& backend_;
  size_t num_bytes_;
  kernels::Buffer from_, to_;
};

class MatrixBench {
 public:
  MatrixBench(Backend& backend, int64_t size)
      : backend_(backend),
        size_(size),
        x_(backend, DType::kBF16, Shape(size, size)),
        out_(backend, DType::kF32, Shape(size, size)) {
    testing::RandomValues random(1);
    std::vector<uint16_t> values(static_cast<size_t>(size * size));
    for (uint16_t& value : values) value = kernels::Bf16FromFloat(random.Normal());
    backend.Copy(x_.view().data, values.data(), values.size() * sizeof(uint16_t), CopyKind::kToDevice);
    backend.Synchronize();
    const kernels::ConstTensorView part = {values.data(), DType::kBF16, Shape(size, size)};
    weight_ = backend.PrepareWeight({.parts = {&part, 1}});
  }

  double FlopsPerSecond() {
    const auto multiply = [&] { backend_.MatMul({.x = x_.view(), .weight = weight_.get(), .out = out_.view()}); };
    const auto size = static_cast<double>(size_);
    return 2 * size * size * size / EnqueuedSeconds(backend_, 4, multiply);
  }

 private:
  Backend& backend_;
  int64_t size_;
  Tensor x_, out_;
  std::unique_ptr<kernels::Weight> weight_;
};

// --- the model -------------------------------------------------------------------------------------------------------

class ModelBench {
 public:
  ModelBench(Backend& backend, const Sizes& sizes) : backend_(backend), sizes_(sizes) {
    model::ModelWeights weights = testing::RandomWeights(sizes.model, backend);
    matrix_bytes_ = static_cast<double>(testing::MatrixBytes(sizes.model, weights));
    transformer_ = std::make_unique<model::Transformer>(sizes.model, std::move(weights), backend, Options(sizes));
    kv_ = transformer_->MakeKvCache(NumBlocks(sizes));
  }

  static model::TransformerOptions Options(const Sizes& sizes) {
    return {.max_rows = sizes.max_rows,
            .max_logit_rows = std::min(sizes.max_rows, 512),
            .max_positions = sizes.prompt_tokens + 64};
  }
  // Blocks for all sequences, each with room for a tree.
  static int32_t NumBlocks(const Sizes& sizes) {
    return std::max(sizes.num_sequences * BlocksEach(sizes), sizes.prompt_tokens / kernels::kKvBlockSize + 1);
  }

  // A step of this many sequences: for each the root at the context's end, and a tree below it.
  double StepSeconds(int32_t num_sequences, int32_t num_nodes) {
    const model::ForwardBatch batch = StepBatch(num_sequences, num_nodes);
    return EnqueuedSeconds(backend_, 8, [&] { transformer_->Forward(batch, kv_); });
  }

  // The additional time of a step of single roots with forward pass, draw and wait, over the device's own time: the
  // time to enqueue the first op, and to learn that the step is done.
  double LaunchSeconds() {
    const model::ForwardBatch batch = StepBatch(sizes_.num_sequences, 0);
    std::vector<kernels::AcceptedPath> paths(sizes_.num_sequences);
    const auto step = [&] { Draw(transformer_->Forward(batch, kv_), paths); };
    step();
    return AwaitedSeconds(backend_, 16, step) - EnqueuedSeconds(backend_, 16, step);
  }

  double PrefillSeconds() {
    return EnqueuedSeconds(backend_, 1, [&] {
      for (int32_t begin = 0; begin < sizes_.prompt_tokens; begin += sizes_.max_rows) {
        model::ForwardBatch batch;
        const int32_t end = std::min(begin + sizes_.max_rows, sizes_.prompt_tokens);
        const std::vector<int32_t> chain(end - begin, 7);
        const int32_t last = AppendSegment(
            {.block_table = Blocks(0, sizes_.prompt_tokens), .first_position = begin, .chain = chain}, &batch);
        if (end == sizes_.prompt_tokens) batch.logit_rows = {last};
        transformer_->Forward(batch, kv_);
      }
    });
  }
  double PrefillFlops() const {
    return 2 * (sizes_.prompt_tokens * testing::LayerMultiplies(sizes_.model) + testing::HeadMultiplies(sizes_.model));
  }

  HostWork MeasureHost(const tokenizer::Tokenizer& tokenizer) { return MeasureHostWork(*transformer_, kv_, tokenizer); }

  double matrix_bytes() const { return matrix_bytes_; }
  const std::string& product_tuning() const { return transformer_->product_tuning(); }

 private:
  static int32_t BlocksEach(const Sizes& sizes) { return (sizes.context_tokens + 64) / kernels::kKvBlockSize + 1; }

  model::ForwardBatch StepBatch(int32_t num_sequences, int32_t num_nodes) const {
    model::ForwardBatch batch;
    const std::vector<int32_t> root = {7}, nodes(num_nodes, 8), parents = TreeParents(num_nodes);
    for (int32_t i = 0; i < num_sequences; ++i) {
      const std::vector<int32_t> blocks = Blocks(i * BlocksEach(sizes_), sizes_.context_tokens + 64);
      std::vector<int32_t> slots;
      for (int32_t node = 0; node < num_nodes; ++node) {
        slots.push_back(model::SlotOf(blocks, sizes_.context_tokens + node));
      }
      AppendSegment({.block_table = blocks,
                     .first_position = sizes_.context_tokens - 1,
                     .chain = root,
                     .tree_token_ids = nodes,
                     .tree_parents = parents,
                     .tree_slots = slots},
                    &batch);
    }
    for (int32_t row = 0; row < batch.num_rows(); ++row) batch.logit_rows.push_back(row);
    return batch;
  }

  void Draw(const kernels::ConstTensorView& logits, std::vector<kernels::AcceptedPath>& paths) {
    static constexpr int32_t kRoot = 7, kNoParent = -1;
    std::vector<kernels::TreeToAccept> trees;
    for (int32_t i = 0; i < static_cast<int32_t>(paths.size()); ++i) {
      trees.push_back({.first_logit_row = i,
                       .token_ids = {&kRoot, 1},
                       .parents = {&kNoParent, 1},
                       .context_len = static_cast<uint32_t>(sizes_.context_tokens)});
    }
    backend_.AcceptTrees({.logits = logits,
                          .num_tokens = static_cast<int32_t>(sizes_.model.vocab_size),
                          .trees = trees,
                          .paths = paths});
  }

  Backend& backend_;
  const Sizes& sizes_;
  double matrix_bytes_ = 0;
  std::unique_ptr<model::Transformer> transformer_;
  model::KvCache kv_;
};

// --- attention and draw alone ----------------------------------------------------------------------------------------

// One layer's attention of trees below long contexts.
class AttentionBench {
 public:
  AttentionBench(Backend& backend, const Sizes& sizes)
      : backend_(backend), sizes_(sizes), batch_(backend, 0), num_heads_(static_cast<int32_t>(sizes.model.num_heads)) {
    const int32_t blocks_each = (sizes.attention_context + sizes.attention_rows) / kernels::kKvBlockSize + 1;
    kv_ = {.num_layers = 1,
           .num_blocks = sizes.attention_batch * blocks_each,
           .num_kv_heads = static_cast<int32_t>(sizes.model.num_kv_heads),
           .head_dim = static_cast<int32_t>(sizes.model.head_dim)};
    buffer_ = backend.Allocate(kv_.num_bytes());
    kv_.data = buffer_.get();
    model::ForwardBatch batch;
    for (int32_t i = 0; i < sizes.attention_batch; ++i) AppendTree(Blocks(i * blocks_each, Positions()), batch);
    num_rows_ = batch.num_rows();
    const int64_t columns = num_heads_ * kv_.head_dim;
    q_ = Tensor(backend, DType::kF32, Shape(num_rows_, columns));
    out_ = Tensor(backend, DType::kBF16, Shape(num_rows_, columns));
    view_ = batch_.Upload(batch).batch;
  }

  // The bytes of K and V. Each must be read once.
  double BytesPerSecond() {
    const auto attend = [&] {
      backend_.Attention({.q = q_.view(), .batch = view_, .kv = kv_, .layer = 0, .scale = 0.1f, .out = out_.view()});
    };
    attend();
    const double num_bytes = 4.0 * sizes_.attention_batch * sizes_.attention_context * kv_.num_kv_heads * kv_.head_dim;
    return num_bytes / EnqueuedSeconds(backend_, 8, attend);
  }

 private:
  int32_t Positions() const { return sizes_.attention_context + sizes_.attention_rows; }

  void AppendTree(const std::vector<int32_t>& blocks, model::ForwardBatch& batch) const {
    const std::vector<int32_t> root = {0}, nodes(sizes_.attention_rows - 1), parents = TreeParents(nodes.size());
    std::vector<int32_t> slots;
    for (int32_t node = 0; node < static_cast<int32_t>(nodes.size()); ++node) {
      slots.push_back(model::SlotOf(blocks, sizes_.attention_context + node));
    }
    AppendSegment({.block_table = blocks,
                   .first_position = sizes_.attention_context - 1,
                   .chain = root,
                   .tree_token_ids = nodes,
                   .tree_parents = parents,
                   .tree_slots = slots},
                  &batch);
  }

  Backend& backend_;
  const Sizes& sizes_;
  model::DeviceBatch batch_;
  int32_t num_heads_;
  int32_t num_rows_ = 0;
  kernels::KvCacheView kv_;
  kernels::Buffer buffer_;
  Tensor q_, out_;
  kernels::BatchView view_;
};

// The experts of one layer, in the shape of Qwen3-30B-A3B. A row chooses 8 of the 128 experts.
class ExpertsBench {
 public:
  ExpertsBench(Backend& backend, const Sizes& sizes)
      : backend_(backend),
        x_(backend, DType::kBF16, Shape(kMaxRows, sizes.expert_inputs)),
        scores_(backend, DType::kF32, Shape(kNumTurns * kMaxRows, kNumExperts)),
        out_(backend, DType::kF32, Shape(kMaxRows, sizes.expert_inputs)) {
    testing::RandomValues random(4);
    scores_of_turns_ = random.Normals(kNumTurns * kMaxRows * kNumExperts);
    backend.Copy(scores_.view().data, scores_of_turns_.data(), scores_of_turns_.size() * sizeof(float),
                 CopyKind::kToDevice);
    const int64_t E = sizes.expert_inputs, F = sizes.expert_width;
    std::vector<uint16_t> values(static_cast<size_t>(2 * F * E));
    for (uint16_t& value : values) value = kernels::Bf16FromFloat(0.02f * random.Normal());
    const auto prepare = [&](int64_t outputs, int64_t inputs) {
      const kernels::ConstTensorView part = {values.data(), DType::kBF16, Shape(outputs, inputs)};
      weights_.push_back(backend.PrepareWeight({.parts = {&part, 1}}));
    };
    for (int64_t expert = 0; expert < kNumExperts; ++expert) {
      prepare(2 * F, E);
      prepare(E, F);
    }
    experts_ = backend.PrepareExperts(kNumExperts, [&](int32_t expert) {
      return kernels::Expert{.gate_up = weights_[2 * expert].get(), .down = weights_[2 * expert + 1].get()};
    });
    backend.Synchronize();
  }

  // Of a layer with so many rows, which choose anew in each turn, so that the second-level cache does not help.
  double Seconds(int64_t num_rows) {
    int64_t turn = 0;
    const auto compute = [&] {
      const float* scores = scores_.view().as<float>() + turn++ % kNumTurns * kMaxRows * kNumExperts;
      backend_.Experts({.x = {x_.view().data, DType::kBF16, Shape(num_rows, x_.view().shape[1])},
                        .scores = {scores, DType::kF32, Shape(num_rows, kNumExperts)},
                        .experts = experts_.get(),
                        .num_chosen = kNumChosen,
                        .out = {out_.view().data, DType::kF32, Shape(num_rows, x_.view().shape[1])}});
    };
    return EnqueuedSeconds(backend_, kNumTurns, compute);
  }
  // The bytes of the experts that so many rows choose, on the average over the turns.
  double TouchedBytes(int64_t num_rows) const {
    int64_t num_touched = 0;
    for (int64_t turn = 0; turn < kNumTurns; ++turn) {
      std::set<int64_t> touched;
      for (int64_t row = 0; row < num_rows; ++row) {
        const float* scores = &scores_of_turns_[(turn * kMaxRows + row) * kNumExperts];
        std::vector<int64_t> order(kNumExperts);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::nth_element(order, order.begin() + kNumChosen, std::greater<>(),
                                 [&](int64_t expert) { return scores[expert]; });
        touched.insert(order.begin(), order.begin() + kNumChosen);
      }
      num_touched += static_cast<int64_t>(touched.size());
    }
    const size_t expert_bytes = weights_[0]->num_bytes() + weights_[1]->num_bytes();
    return static_cast<double>(num_touched) / kNumTurns * static_cast<double>(expert_bytes);
  }

 private:
  static constexpr int64_t kNumExperts = 128, kNumTurns = 16, kMaxRows = 64;
  static constexpr int32_t kNumChosen = 8;

  Backend& backend_;
  Tensor x_, scores_, out_;
  std::vector<float> scores_of_turns_;  // [turns, rows, experts]
  std::vector<std::unique_ptr<kernels::Weight>> weights_;
  std::unique_ptr<kernels::ExpertSet> experts_;
};

class DrawBench {
 public:
  DrawBench(Backend& backend, const Sizes& sizes)
      : backend_(backend),
        num_rows_(sizes.draw_rows),
        num_tokens_(sizes.model.vocab_size),
        logits_(backend, DType::kF32, Shape(num_rows_, num_tokens_)) {
    testing::RandomValues random(2);
    const std::vector<float> values = random.Normals(num_rows_ * num_tokens_);
    backend.Copy(logits_.view().data, values.data(), values.size() * sizeof(float), CopyKind::kToDevice);
    backend.Synchronize();
  }

  double Seconds(const kernels::SamplingParams& sampling) {
    static constexpr int32_t kRoot = 7, kNoParent = -1;
    std::vector<kernels::TreeToAccept> trees;
    for (int32_t row = 0; row < num_rows_; ++row) {
      trees.push_back({.first_logit_row = row,
                       .token_ids = {&kRoot, 1},
                       .parents = {&kNoParent, 1},
                       .context_len = 100u + row,
                       .sampling = sampling});
    }
    std::vector<kernels::AcceptedPath> paths(trees.size());
    const auto draw = [&] {
      backend_.AcceptTrees(
          {.logits = logits_.view(), .num_tokens = static_cast<int32_t>(num_tokens_), .trees = trees, .paths = paths});
    };
    draw();
    return EnqueuedSeconds(backend_, 8, draw);
  }
  double logit_bytes() const { return static_cast<double>(logits_.view().num_bytes()); }

 private:
  Backend& backend_;
  int32_t num_rows_;
  int64_t num_tokens_;
  Tensor logits_;
};

}  // namespace foretoken::bench
