// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/make_proposer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/free_memory.h"
#include "proposer_service/draft/drafter_trial.h"
#include "proposer_service/features/load_drafter.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/suffix/suffix.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

// Where the target cannot be loaded, the drafter serves untried: a pod may have the memory of the drafter alone, or
// only the files of the target that the drafter itself needs.
absl::Status TryOnTarget(Drafter& drafter, const DraftOptions& options) {
  // A GPU's memory is checked by its backend. On CPUs the system would end the process instead.
  const std::optional<int64_t> free_bytes = options.device == "cpu" ? kernels::FreeMemory() : std::nullopt;
  absl::StatusOr<model::RunnableModel> target = LoadTrialTarget(options, free_bytes);
  if (target.ok()) return TryDrafter(*drafter.model, *drafter.description.features, *target);
  spdlog::warn(
      "the drafter serves untried, because its target cannot be loaded here: {}. If it reads its file wrongly, only "
      "its acceptance shows it. --try_on_target=false leaves the trial out",
      std::string(target.status().message()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Proposer>> MakeProposer(const Config& config, telemetry::Metrics& metrics) {
  if (config.method == "ngram") return std::make_unique<NgramProposer>(config.ngram);
  if (config.method == "suffix") return SuffixProposer::Create(config.suffix, &metrics);
  std::unique_ptr<DraftProposer> draft;
  if (ReadsFeatures(config.method)) {
    FT_ASSIGN_OR_RETURN(Drafter drafter, LoadDrafter(config.method, config.draft));
    if (config.draft.try_on_target) FT_RETURN_IF_ERROR(TryOnTarget(drafter, config.draft));
    draft = DraftProposer::Make(std::move(drafter), config.draft.forest, metrics);
  } else {
    FT_ASSIGN_OR_RETURN(draft, DraftProposer::Load(config.draft, metrics));
  }
  draft->Start();
  return draft;
}

}  // namespace foretoken::proposer
