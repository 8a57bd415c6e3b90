// SPDX-License-Identifier: Apache-2.0
// The features that a drafter reads (common/speculation/target_features.h), one for each slot of the K/V cache. The
// plane follows the blocks: sequences that share a block share its features, and evicting a block evicts them.
//
//   FeaturePlane plane(features, transformer, kv.num_blocks);
//   while (!plane.Prepare()) continue;       // or once a step
//   transformer.Capture(plane.layers());
//   transformer.Forward(batch, kv);
//   plane.Store({{.row = 0, .slot = 17}});   // rows of this pass whose tokens are committed
//   plane.FirstKnown(blocks, 0, 18);         // 17: the plane is younger than positions 0 to 16
//   plane.Read(blocks, 17, 18)               // [1, H] bf16 on the host
//
// A feature is a pure function of the row's context, bit for bit, as its logits are (E1).
// Threads: the backend's caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/model/transformer.h"
#include "common/speculation/target_features.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"

namespace foretoken::model {

// A row of the last pass, and the slot of its position.
struct FeatureRow {
  int32_t row = 0;
  int32_t slot = 0;
};

class FeaturePlane {
 public:
  // Bytes of a projection's weight that Prepare takes at a time: little beside what a step of such a target reads, and
  // enough outputs for a product that keeps a device busy.
  static constexpr int64_t kPartBytes = int64_t{16} << 20;

  // The features fit the model: its hidden size, and layers from 0 to L. The transformer outlives the plane, and the
  // features outlive its preparation.
  FeaturePlane(const speculation::TargetFeatures& features, Transformer& transformer, int32_t num_blocks);
  // What such a plane takes of the device, with the layers that the transformer captures for it.
  static kernels::MemoryNeed NeedOf(const speculation::TargetFeatures& features, const Transformer& transformer,
                                    int32_t num_blocks);

  // The k of the S_k that the transformer must capture.
  std::span<const int32_t> layers() const { return layers_; }
  int64_t width() const { return width_; }

  // Prepares the next part of the projection's weight, and returns whether all of it is prepared. A projection has up
  // to a GiB, and its whole preparation would hold up every running sequence.
  bool Prepare();
  bool is_prepared() const { return next_output_ == num_projected_; }
  // Of the device, that preparation will still take.
  size_t num_unprepared_bytes() const;

  // Computes and stores the features of rows of the last pass. The plane is prepared, and the transformer captured the
  // layers in the pass. Slots are distinct.
  void Store(std::span<const FeatureRow> rows);
  // Rows of the last pass whose features nobody reads: the plane does not know those of their slots, whatever was
  // there.
  void Skip(std::span<const FeatureRow> rows);

  // The first position in [begin, end) from which on the plane knows all features up to `end`; `end`: it does not know
  // the last one. Positions below `end` are computed.
  int32_t FirstKnown(std::span<const int32_t> blocks, int32_t begin, int32_t end) const;
  // The features of positions [begin, end): [end - begin, H] bf16. Waits for the device.
  std::vector<uint16_t> Read(std::span<const int32_t> blocks, int32_t begin, int32_t end) const;
  // After passes whose rows were not stored: the plane no longer knows any feature.
  void Forget() { is_known_.assign(is_known_.size(), false); }

 private:
  void GatherInputs(const int32_t* rows, int32_t num_rows);
  void Project(const int32_t* slots, int32_t num_rows);

  Transformer& transformer_;
  kernels::Backend& backend_;
  std::vector<int32_t> layers_;  // [A]
  bool is_final_norm_;           // the one layer is L, and the feature is the last hidden state after the final norm
  std::optional<speculation::FeatureProjection> projection_;  // without the weight's bytes
  int64_t width_;                                             // H
  // The weight [H, A E] in parts of some outputs each; empty without a projection.
  std::vector<std::unique_ptr<kernels::Weight>> parts_;
  std::span<const uint16_t> unprepared_;  // the features' weight, until it is prepared
  int64_t num_projected_ = 0;             // H, or 0 without a projection
  int64_t next_output_ = 0;               // the first one that is not prepared
  int64_t part_outputs_ = 0;              // of each part but the last
  tensor::Tensor gains_;                  // [A E] f32, or empty
  tensor::Tensor values_;                 // [slots, H] bf16
  std::vector<bool> is_known_;            // [slots]

  // Of the rows that are stored, at most as many as a pass has.
  tensor::Tensor row_numbers_;  // [2 T] int32: rows, then slots
  tensor::Tensor unnormed_;     // [T, A E] f32, for a norm over all layers
  tensor::Tensor normed_;       // [T, E] bf16
  tensor::Tensor inputs_;       // [T, A E] bf16
  tensor::Tensor projected_;    // [T, outputs of a part] f32
};

}  // namespace foretoken::model
