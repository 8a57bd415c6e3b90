// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/make_proposer.h"

#include <utility>

#include "common/base/status_macros.h"
#include "proposer_service/draft/drafter_trial.h"
#include "proposer_service/features/load_drafter.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/suffix/suffix.h"

namespace foretoken::proposer {

absl::StatusOr<std::unique_ptr<Proposer>> MakeProposer(const Config& config, telemetry::Metrics& metrics) {
  if (config.method == "ngram") return std::make_unique<NgramProposer>(config.ngram);
  if (config.method == "suffix") return SuffixProposer::Create(config.suffix, &metrics);
  std::unique_ptr<DraftProposer> draft;
  if (ReadsFeatures(config.method)) {
    FT_ASSIGN_OR_RETURN(Drafter drafter, LoadDrafter(config.method, config.draft));
    if (config.draft.try_on_target) {
      FT_RETURN_IF_ERROR(TryDrafter(*drafter.model, *drafter.description.features, config.draft));
    }
    draft = DraftProposer::Make(std::move(drafter), config.draft.forest, metrics);
  } else {
    FT_ASSIGN_OR_RETURN(draft, DraftProposer::Load(config.draft, metrics));
  }
  draft->Start();
  return draft;
}

}  // namespace foretoken::proposer
