// SPDX-License-Identifier: Apache-2.0
// Converts a step report to its message.
#pragma once

#include "foretoken/v1/generation.pb.h"
#include "verifier_service/request/step_report.h"

namespace foretoken::verifier {

v1::StepReport ToProto(const StepReport& report);

}  // namespace foretoken::verifier
