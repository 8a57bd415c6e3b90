// SPDX-License-Identifier: Apache-2.0
// Tells what a step did to the samples whose requests ask for it. For others it costs a look at a flag.
#pragma once

#include <span>

#include "verifier_service/engine/step_report.h"
#include "verifier_service/engine/tree_batch.h"

namespace foretoken::verifier {

// Adds the step's report to the output of every planned sequence that wants one. The step is committed, its outputs are
// not taken yet, and the plan's guesses are still as they were planned from.
void ReportStep(const StepSummary& step, std::span<const PlannedSequence> plan);

}  // namespace foretoken::verifier
