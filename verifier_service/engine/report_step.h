// SPDX-License-Identifier: Apache-2.0
// Reports what a step did to a sample, for requests that ask for it.
#pragma once

#include "verifier_service/engine/step_plan.h"
#include "verifier_service/request/step_report.h"

namespace foretoken::verifier {

// The report of a committed step for one sample: its outputs are not taken yet, and the guess is still as it was
// planned from.
StepReport ReportOf(const StepSummary& step, const PlannedSequence& planned);

}  // namespace foretoken::verifier
