// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda/on_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/activate.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/move_kv.h"
#include "kernels/cuda/attention/rope_store_kv.h"
#include "kernels/cuda/cap_logits.h"
#include "kernels/cuda/copy_rows.h"
#include "kernels/cuda/draw/accept_trees.h"
#include "kernels/cuda/draw/branch_rows.h"
#include "kernels/cuda/draw/score_tokens.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/join_columns.h"
#include "kernels/cuda/recurrent_cell.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/spread_logits.h"
#include "kernels/cuda/sum_ranks.h"

namespace foretoken::kernels::cuda {

namespace {

// Copies on the device that live as long as this object.
class DeviceCopies {
 public:
  explicit DeviceCopies(Device& device) : device_(device) {}

  void* Upload(const void* data, size_t num_bytes) {
    copies_.push_back(device_.Allocate(std::max<size_t>(num_bytes, 1)));
    device_.Copy(copies_.back().get(), data, num_bytes, CopyKind::kToDevice);
    return copies_.back().get();
  }
  template <typename T>
  const T* Upload(const T* data, size_t count) {
    return data == nullptr ? nullptr : static_cast<const T*>(Upload(static_cast<const void*>(data), count * sizeof(T)));
  }
  // A view of a copy.
  template <typename View>
  View Upload(View view) {
    view.data = Upload(view.data, view.num_bytes());
    return view;
  }
  template <typename View>
  void Download(const View& from, const View& to) {
    device_.Copy(to.data, from.data, to.num_bytes(), CopyKind::kToHost);
    device_.Synchronize();
  }

 private:
  Device& device_;
  std::vector<Buffer> copies_;
};

}  // namespace

void OnDevice::SetUp() {
  Device::Opened opened = Device::Open();
  if (opened.device == nullptr) GTEST_SKIP() << opened.error;
  device_ = std::move(opened.device);
}

std::vector<float> OnDevice::DownloadWeight(const CudaWeight& weight) {
  PackedWeight packed = weight.packed();
  std::vector<uint8_t> data(packed.num_bytes());
  std::vector<float> scales(packed.scales == nullptr ? 0 : packed.num_outputs);
  device().Copy(data.data(), packed.data, data.size(), CopyKind::kToHost);
  device().Copy(scales.data(), packed.scales, scales.size() * sizeof(float), CopyKind::kToHost);
  device().Synchronize();
  packed.data = data.data();
  packed.scales = scales.data();
  std::vector<float> elements;
  for (int64_t output = 0; output < packed.num_outputs; ++output) {
    for (int64_t input = 0; input < packed.num_inputs; ++input) elements.push_back(packed.Element(output, input));
  }
  return elements;
}

void OnDevice::RunEmbed(EmbedArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.token_ids = copies.Upload(args.token_ids, out.shape[0]);
  args.out = copies.Upload(out);
  Embed(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunMatMul(MatMulArgs args, MatMulKernel matmul) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.x = copies.Upload(args.x);
  args.bias = copies.Upload(args.bias, out.shape[1]);
  args.out = copies.Upload(out);
  matmul(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunRmsNorm(RmsNormArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.x = copies.Upload(args.x);
  args.rows = copies.Upload(args.rows, out.shape[0]);
  args.gain = copies.Upload(args.gain, out.shape[1]);
  args.out = copies.Upload(out);
  RmsNorm(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunMeanSquares(MeanSquaresArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.x = copies.Upload(args.x);
  args.out = copies.Upload(out);
  MeanSquares(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunGlu(GluArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.gate_up = copies.Upload(args.gate_up);
  args.out = copies.Upload(out);
  Glu(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunRopeStoreKv(RopeStoreKvArgs args, int32_t num_positions) {
  DeviceCopies copies(device());
  const TensorView q = args.q;
  const KvCacheView kv = args.kv;
  const int32_t num_rows = args.batch.num_rows, half_dim = args.rotary_dim.value_or(kv.head_dim) / 2;
  args.qkv = copies.Upload(args.qkv);
  const bool are_whole = args.mean_squares != nullptr;
  args.q_gain = copies.Upload(args.q_gain, are_whole ? q.shape[1] : kv.head_dim);
  args.k_gain = copies.Upload(args.k_gain, are_whole ? kv.num_kv_heads * kv.head_dim : kv.head_dim);
  args.mean_squares = copies.Upload(args.mean_squares, size_t{2} * num_rows);
  args.cos = copies.Upload(args.cos, size_t{1} * num_positions * half_dim);
  args.sin = copies.Upload(args.sin, size_t{1} * num_positions * half_dim);
  args.batch.positions = copies.Upload(args.batch.positions, num_rows);
  args.batch.slots = copies.Upload(args.batch.slots, num_rows);
  args.kv = copies.Upload(kv);
  args.q = copies.Upload(q);
  RopeStoreKv(args, device().stream());
  copies.Download(args.kv, kv);
  copies.Download(args.q, q);
}

void OnDevice::RunAttention(AttentionArgs args, int32_t blocks_per_piece) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  BatchView& batch = args.batch;
  const int32_t num_rows = batch.num_rows, num_segments = batch.num_segments;
  const int32_t num_ancestors = batch.ancestor_begins[num_rows], num_blocks = batch.block_table_begins[num_segments];
  batch.positions = copies.Upload(batch.positions, num_rows);
  batch.chain_lens = copies.Upload(batch.chain_lens, num_rows);
  batch.ancestor_begins = copies.Upload(batch.ancestor_begins, num_rows + 1);
  batch.ancestor_slots = copies.Upload(batch.ancestor_slots, num_ancestors);
  batch.segment_begins = copies.Upload(batch.segment_begins, num_segments + 1);
  batch.block_table_begins = copies.Upload(batch.block_table_begins, num_segments + 1);
  batch.block_tables = copies.Upload(batch.block_tables, num_blocks);
  args.window_origins = copies.Upload(args.window_origins, num_rows);
  args.sinks = copies.Upload(args.sinks, args.q.shape[1] / args.kv.head_dim);
  args.q = copies.Upload(args.q);
  args.kv = copies.Upload(args.kv);
  args.out = copies.Upload(out);
  Attention(args, blocks_per_piece, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunAcceptTrees(AcceptTreesArgs args) {
  DeviceCopies copies(device());
  args.logits = copies.Upload(args.logits);
  {
    std::vector<TreeToAccept> trees(args.trees.begin(), args.trees.end());
    std::vector<std::vector<const uint32_t*>> masks(trees.size());
    for (size_t i = 0; i < trees.size(); ++i) {
      for (const uint32_t* mask : trees[i].masks) masks[i].push_back(copies.Upload(mask, (args.num_tokens + 31) / 32));
      trees[i].masks = masks[i];
    }
    args.trees = trees;
    AcceptTrees(args, device());
  }  // the op has copied its inputs
  device().Synchronize();
}

void OnDevice::RunBranchRows(BranchRowsArgs args) {
  DeviceCopies copies(device());
  args.logits = copies.Upload(args.logits);
  BranchRows(args, device());
  device().Synchronize();
}

void OnDevice::RunScoreTokens(ScoreTokensArgs args) {
  DeviceCopies copies(device());
  args.logits = copies.Upload(args.logits);
  ScoreTokens(args, device());
  device().Synchronize();
}

void OnDevice::RunMoveKv(MoveKvArgs args) {
  DeviceCopies copies(device());
  const KvCacheView kv = args.kv;
  args.kv = copies.Upload(kv);
  MoveKv(args, device().stream());
  copies.Download(args.kv, kv);
}

void OnDevice::RunSumRanks(SumRanksArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  const bool is_in_place = out.data == args.pieces.data;
  args.pieces = copies.Upload(args.pieces);
  args.out = is_in_place ? TensorView{const_cast<void*>(args.pieces.data), out.dtype, out.shape} : copies.Upload(out);
  SumRanks(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunJoinColumns(JoinColumnsArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.pieces = copies.Upload(args.pieces, args.widths.size() * args.piece_elements);
  args.out = copies.Upload(out);
  JoinColumns(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunActivate(ActivateArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.x = copies.Upload(args.x);
  args.bias = copies.Upload(args.bias, args.x.shape[1]);
  args.out = copies.Upload(out);
  Activate(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunRecurrentCell(RecurrentCellArgs args) {
  DeviceCopies copies(device());
  const TensorView state = args.state, out = args.out;
  args.gates = copies.Upload(args.gates);
  args.state = copies.Upload(state);
  args.out = copies.Upload(out);
  RecurrentCell(args, device().stream());
  copies.Download(args.state, state);
  copies.Download(args.out, out);
}

void OnDevice::RunCopyRows(CopyRowsArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.x = copies.Upload(args.x);
  args.from = copies.Upload(args.from, args.num_rows);
  args.to = copies.Upload(args.to, args.num_rows);
  args.out = copies.Upload(out);
  CopyRows(args, device().stream());
  copies.Download(args.out, out);
}

void OnDevice::RunCapLogits(CapLogitsArgs args) {
  DeviceCopies copies(device());
  const TensorView logits = args.logits;
  args.logits = copies.Upload(logits);
  CapLogits(args, device().stream());
  copies.Download(args.logits, logits);
}

void OnDevice::RunSpreadLogits(SpreadLogitsArgs args) {
  DeviceCopies copies(device());
  const TensorView out = args.out;
  args.logits = copies.Upload(args.logits);
  args.token_ids = copies.Upload(args.token_ids, args.logits.shape[1]);
  args.out = copies.Upload(out);
  SpreadLogits(args, device().stream());
  copies.Download(args.out, out);
}

}  // namespace foretoken::kernels::cuda
