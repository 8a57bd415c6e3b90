// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda/on_device.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/move_kv.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_store_kv.h"
#include "kernels/cuda/silu_mul.h"

namespace foretoken::kernels::cuda {

void OnDevice::SetUp() {
  Device::Opened opened = Device::Open();
  if (opened.device == nullptr) GTEST_SKIP() << opened.error;
  device_ = std::move(opened.device);
}

void* OnDevice::Upload(const void* data, size_t num_bytes) {
  copies_.push_back(device().Allocate(std::max<size_t>(num_bytes, 1)));
  device().Copy(copies_.back().get(), data, num_bytes, CopyKind::kToDevice);
  return copies_.back().get();
}

ConstTensorView OnDevice::Upload(ConstTensorView view) {
  view.data = Upload(view.data, view.num_bytes());
  return view;
}

TensorView OnDevice::Upload(TensorView view) {
  view.data = Upload(view.data, view.num_bytes());
  return view;
}

KvCacheView OnDevice::Upload(KvCacheView kv) {
  kv.data = Upload(kv.data, kv.num_bytes());
  return kv;
}

void OnDevice::Finish(const TensorView& from, const TensorView& to) {
  device().Copy(to.data, from.data, to.num_bytes(), CopyKind::kToHost);
  device().Synchronize();
  copies_.clear();
}

void OnDevice::Finish(const KvCacheView& from, const KvCacheView& to) {
  device().Copy(to.data, from.data, to.num_bytes(), CopyKind::kToHost);
  device().Synchronize();
}

void OnDevice::RunEmbed(EmbedArgs args) {
  const TensorView out = args.out;
  args.token_ids = Upload(args.token_ids, out.shape[0]);
  args.out = Upload(out);
  Embed(args, device().stream());
  Finish(args.out, out);
}

void OnDevice::RunMatMul(MatMulArgs args) {
  const TensorView out = args.out;
  args.x = Upload(args.x);
  args.bias = Upload(args.bias, out.shape[1]);
  args.out = Upload(out);
  MatMul(args, device().stream());
  Finish(args.out, out);
}

void OnDevice::RunRmsNorm(RmsNormArgs args) {
  const TensorView out = args.out;
  args.x = Upload(args.x);
  args.rows = Upload(args.rows, out.shape[0]);
  args.gain = Upload(args.gain, out.shape[1]);
  args.out = Upload(out);
  RmsNorm(args, device().stream());
  Finish(args.out, out);
}

void OnDevice::RunSiluMul(SiluMulArgs args) {
  const TensorView out = args.out;
  args.gate_up = Upload(args.gate_up);
  args.out = Upload(out);
  SiluMul(args, device().stream());
  Finish(args.out, out);
}

void OnDevice::RunRopeStoreKv(RopeStoreKvArgs args, int32_t num_positions) {
  const TensorView q = args.q;
  const KvCacheView kv = args.kv;
  const int32_t num_rows = args.batch.num_rows, half_dim = kv.head_dim / 2;
  args.qkv = Upload(args.qkv);
  args.q_gain = Upload(args.q_gain, kv.head_dim);
  args.k_gain = Upload(args.k_gain, kv.head_dim);
  args.cos = Upload(args.cos, size_t{1} * num_positions * half_dim);
  args.sin = Upload(args.sin, size_t{1} * num_positions * half_dim);
  args.batch.positions = Upload(args.batch.positions, num_rows);
  args.batch.slots = Upload(args.batch.slots, num_rows);
  args.kv = Upload(kv);
  args.q = Upload(q);
  RopeStoreKv(args, device().stream());
  Finish(args.kv, kv);
  Finish(args.q, q);
}

void OnDevice::RunAttention(AttentionArgs args) {
  const TensorView out = args.out;
  BatchView& batch = args.batch;
  const int32_t num_rows = batch.num_rows, num_segments = batch.num_segments;
  const int32_t num_ancestors = batch.ancestor_begins[num_rows], num_blocks = batch.block_table_begins[num_segments];
  batch.positions = Upload(batch.positions, num_rows);
  batch.chain_lens = Upload(batch.chain_lens, num_rows);
  batch.ancestor_begins = Upload(batch.ancestor_begins, num_rows + 1);
  batch.ancestor_slots = Upload(batch.ancestor_slots, num_ancestors);
  batch.segment_begins = Upload(batch.segment_begins, num_segments + 1);
  batch.block_table_begins = Upload(batch.block_table_begins, num_segments + 1);
  batch.block_tables = Upload(batch.block_tables, num_blocks);
  args.q = Upload(args.q);
  args.kv = Upload(args.kv);
  args.out = Upload(out);
  Attention(args, device().stream());
  Finish(args.out, out);
}

void OnDevice::RunMoveKv(MoveKvArgs args) {
  const KvCacheView kv = args.kv;
  args.kv = Upload(kv);
  MoveKv(args, device().stream());
  Finish(args.kv, kv);
  copies_.clear();
}

}  // namespace foretoken::kernels::cuda
