// SPDX-License-Identifier: Apache-2.0
// Makes the proposer that the configuration names, ready to serve.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/telemetry/metrics.h"
#include "proposer_service/config.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

// The configuration must be valid. The metrics outlive the proposer. Errors: those of SuffixProposer::Create,
// DraftProposer::Load and LoadDrafter.
absl::StatusOr<std::unique_ptr<Proposer>> MakeProposer(const Config& config, telemetry::Metrics& metrics);

}  // namespace foretoken::proposer
