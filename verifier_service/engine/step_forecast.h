// SPDX-License-Identifier: Apache-2.0
// The expectations of a planned step. They are made before the step runs, because the step teaches the cost curve that
// they come from.
#pragma once

#include <span>

#include "verifier_service/engine/step_plan.h"
#include "verifier_service/planner/step_cost.h"
#include "verifier_service/request/step_report.h"

namespace foretoken::verifier {

StepForecast Forecast(std::span<const PlannedSequence> plan, const StepPolicy& policy, const StepCost& cost);

// How many tokens a sequence that draws is expected to emit: 1 and the chances of its nodes with rows.
float ExpectedTokens(const PlannedSequence& planned);

}  // namespace foretoken::verifier
