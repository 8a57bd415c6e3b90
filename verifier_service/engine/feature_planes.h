// SPDX-License-Identifier: Apache-2.0
// The features that drafters read, as the engine makes and gives them: one plane (common/model/feature_plane.h) for
// each kind of features that connected proposers need. Without such a proposer nothing is captured and no memory is
// taken.
//
//   planes.Follow(proposers);                                    // when a step begins
//   planes.Store(plan, batch, paths, num_committed, proposers);  // in commit
//   planes.Supply(proposers, find);                              // before Flush: what sessions lack
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/model/feature_plane.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/step_plan.h"
#include "verifier_service/engine/tree_batch.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::verifier {

class FeaturePlanes {
 public:
  FeaturePlanes(model::Transformer& transformer, int32_t num_blocks)
      : transformer_(transformer), num_blocks_(num_blocks) {}

  // Adds planes for new sources and drops those that are no longer needed. A new plane takes some steps to prepare, and
  // knows no features of positions that were computed before. Refuses a source that the device has no room for.
  void Follow(ProposerClient& proposers);
  // Stores the features of a step's committed rows, of the sequences that may ask a proposer that reads them.
  // `num_committed` is by planned sequence.
  void Store(std::span<const PlannedSequence> plan, const TreeBatch& batch,
             std::span<const kernels::AcceptedPath> paths, std::span<const int32_t> num_committed,
             const ProposerClient& proposers);
  // Gives proposers the features that their sessions lack, as far as their positions are computed. `find` returns null
  // for a sequence that has ended.
  void Supply(ProposerClient& proposers, const std::function<const Sequence*(SequenceId)>& find) const;

 private:
  struct Entry {
    FeatureSource source;
    std::unique_ptr<model::FeaturePlane> plane;  // null: refused
  };

  void Update(ProposerClient& proposers, const std::vector<FeatureSource>& sources);
  std::optional<std::string> Refusal(const speculation::TargetFeatures& features) const;
  void CaptureLayers();

  model::Transformer& transformer_;
  const int32_t num_blocks_;
  std::vector<Entry> planes_;
};

}  // namespace foretoken::verifier
