// SPDX-License-Identifier: Apache-2.0
// The rows of a batch of trees after requests' adjustments: finds the rows that bias, penalties and masks change, and
// gives the place of each row's logits.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/base/staged_upload.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/cuda/draw/adjust_rows.h"
#include "kernels/cuda/draw/flat_trees.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

class AdjustedTrees {
 public:
  // Allocates memory for the changed rows. Data for the device goes with `upload`.
  AdjustedTrees(const AcceptTreesArgs& args, const FlatTrees& flat_trees, StagedUpload& upload, cudaStream_t stream);
  AdjustedTrees(const AdjustedTrees&) = delete;
  AdjustedTrees& operator=(const AdjustedTrees&) = delete;

  // Device pointers to the logits of the batch's rows: as given, and after adjustment.
  std::span<const float* const> given() const { return given_; }
  std::span<const float* const> adjusted() const { return adjusted_; }

  // Computes the adjusted rows, once the upload is sent.
  void Enqueue(const TreeArrays& trees, cudaStream_t stream);

 private:
  void AddTree(const AcceptTreesArgs& args, const TreeToAccept& tree, const FlatTree& flat);
  void AddCounts(const TreeToAccept& tree, const FlatTree& flat, int32_t num_tokens, RowAdjustment& row);

  std::vector<const float*> given_, adjusted_;
  std::vector<RowAdjustment> rows_;
  std::vector<size_t> row_idx_;  // indices of rows_ in the batch
  std::vector<LogitBias> bias_;
  std::vector<TokenCount> counts_;
  std::optional<StreamScratch> copies_;
  AdjustRowsArgs args_;
};

}  // namespace foretoken::kernels::cuda
