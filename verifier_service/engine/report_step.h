// SPDX-License-Identifier: Apache-2.0
// Makes the step reports of requests that ask for them.
#pragma once

#include <span>
#include <string>

#include "verifier_service/engine/step_plan.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/request/step_report.h"

namespace foretoken::verifier {

// Returns the report of a committed step for one sample. The sequence still holds its output, and its guess has not
// changed since the plan. `proposers` are the names of all proposers, and `asked` has a bit for each that the step's
// policy asks.
StepReport ReportOf(const StepSummary& step, const PlannedSequence& planned, uint32_t asked,
                    const MissingSessions& missing, std::span<const std::string> proposers);

}  // namespace foretoken::verifier
