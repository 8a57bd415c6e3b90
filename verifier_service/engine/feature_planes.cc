// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/feature_planes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/forward_batch.h"

namespace foretoken::verifier {
namespace {

// The rows of a step whose tokens are committed, with the slots where their K/V ends up: prompt rows, roots, and the
// nodes of committed paths. The bonus token has no row yet.
struct CommittedRows {
  std::vector<model::FeatureRow> read, unread;  // of sequences that may ask one of the readers, and of the others
};

bool MayAsk(const Sequence& sequence, uint32_t proposers) {
  return sequence.active->max_tree_nodes > 0 && (sequence.active->allowed_proposers & proposers) != 0;
}

CommittedRows FindCommittedRows(std::span<const PlannedSequence> plan, const TreeBatch& batch,
                                std::span<const kernels::AcceptedPath> paths, std::span<const int32_t> num_committed,
                                uint32_t readers) {
  const model::ForwardBatch& forward = batch.forward;
  CommittedRows found;
  for (size_t i = 0; i < plan.size(); ++i) {
    std::vector<model::FeatureRow>& rows = MayAsk(*plan[i].sequence, readers) ? found.read : found.unread;
    const int32_t first = forward.segment_begins[i];
    for (int32_t row = first; row < first + plan[i].num_chain; ++row) {
      rows.push_back({.row = row, .slot = forward.slots[row]});
    }
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    const size_t planned_idx = batch.planned_idx[i];
    std::vector<model::FeatureRow>& rows = MayAsk(*plan[planned_idx].sequence, readers) ? found.read : found.unread;
    const int32_t root_row = forward.segment_begins[planned_idx] + plan[planned_idx].num_chain - 1;
    for (int32_t n = 1; n < num_committed[planned_idx]; ++n) {  // the first token was drawn at the root's row
      const int32_t row = root_row + paths[i].node_idx[n];
      const int32_t slot = model::SlotOf(plan[planned_idx].sequence->blocks, forward.positions[row]);
      rows.push_back({.row = row, .slot = slot});
    }
  }
  return found;
}

}  // namespace

void FeaturePlanes::Follow(ProposerClient& proposers) {
  const std::vector<FeatureSource> sources = proposers.FeatureSources();
  if (!std::ranges::equal(sources, planes_, {}, {}, &Entry::source)) Update(proposers, sources);
  for (const Entry& entry : planes_) {
    if (entry.plane == nullptr || entry.plane->is_prepared()) continue;
    entry.plane->Prepare();
    break;  // one part a step
  }
}

// A device ends the process when its memory runs out, so it is asked before any is taken. Planes that are not prepared
// will take more.
std::optional<std::string> FeaturePlanes::Refusal(const speculation::TargetFeatures& features) const {
  const kernels::MemoryNeed own = model::FeaturePlane::NeedOf(features, transformer_, num_blocks_);
  kernels::MemoryNeed need = own;
  for (const Entry& entry : planes_) {
    if (entry.plane != nullptr) need.weight_bytes += entry.plane->num_unprepared_bytes();
  }
  if (!transformer_.backend().MemoryRefusal(need).has_value()) return std::nullopt;
  const auto mib = [](size_t num_bytes) { return (num_bytes + (1 << 20) - 1) >> 20; };
  return absl::StrCat("its features: expected room for ", mib(own.weight_bytes + own.kv_bytes + own.pass_bytes),
                      " MiB on the device, of which ", mib(own.kv_bytes),
                      " MiB hold a feature for each K/V slot; there is less. Lower --kv_cache_mb");
}

void FeaturePlanes::CaptureLayers() {
  std::vector<int32_t> layers;
  for (const Entry& entry : planes_) {
    if (entry.plane == nullptr) continue;
    layers.insert(layers.end(), entry.plane->layers().begin(), entry.plane->layers().end());
  }
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  transformer_.Capture(layers);
}

void FeaturePlanes::Update(ProposerClient& proposers, const std::vector<FeatureSource>& sources) {
  std::vector<Entry> planes;
  std::vector<size_t> new_idx;
  for (const FeatureSource& source : sources) {
    const auto known = std::ranges::find(planes_, source, &Entry::source);
    if (known == planes_.end()) new_idx.push_back(planes.size());
    planes.push_back(known == planes_.end() ? Entry{.source = source} : std::move(*known));
  }
  planes_ = std::move(planes);
  CaptureLayers();  // what is no longer needed makes room
  for (const size_t i : new_idx) {
    const FeatureSource& source = planes_[i].source;
    if (const std::optional<std::string> refusal = Refusal(*source)) {
      proposers.RefuseFeatures(source, *refusal);
    } else {
      planes_[i].plane = std::make_unique<model::FeaturePlane>(*source, transformer_, num_blocks_);
      CaptureLayers();  // before the next one asks for room
    }
  }
}

void FeaturePlanes::Store(std::span<const PlannedSequence> plan, const TreeBatch& batch,
                          std::span<const kernels::AcceptedPath> paths, std::span<const int32_t> num_committed,
                          const ProposerClient& proposers) {
  for (const Entry& entry : planes_) {
    if (entry.plane == nullptr || !entry.plane->is_prepared()) continue;
    const CommittedRows rows = FindCommittedRows(plan, batch, paths, num_committed, proposers.ReadersOf(entry.source));
    entry.plane->Store(rows.read);
    entry.plane->Skip(rows.unread);
  }
}

void FeaturePlanes::Supply(ProposerClient& proposers, const std::function<const Sequence*(SequenceId)>& find) const {
  for (const FeatureDemand& demand : proposers.FeatureDemands()) {
    const auto entry = std::ranges::find(planes_, demand.source, [](const Entry& e) { return e.source.get(); });
    const Sequence* const sequence = find(demand.sequence_id);
    if (entry == planes_.end() || entry->plane == nullptr || sequence == nullptr) continue;
    const int32_t num_computed = sequence->num_computed;
    if (num_computed <= demand.begin) continue;
    // Features that the plane does not know never come, so what is given may begin behind the demand's end.
    const int32_t begin = entry->plane->FirstKnown(sequence->blocks, demand.begin, num_computed);
    const int32_t end = std::min(begin + (demand.end - demand.begin), num_computed);
    if (begin < end) proposers.GiveFeatures(demand, begin, entry->plane->Read(sequence->blocks, begin, end));
  }
}

}  // namespace foretoken::verifier
