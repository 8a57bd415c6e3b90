// SPDX-License-Identifier: Apache-2.0
// How the commands print a model's text: as it is into files and pipes; on a terminal with visible control characters,
// and with colour if --color allows it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/text_attribution.h"

namespace foretoken::client {

enum class OutputStyle { kPlain, kVisibleControls, kColor };

// From --color, and from where standard output goes. INVALID_ARGUMENT names the flag.
absl::StatusOr<OutputStyle> OutputStyleFromFlags();

std::string Show(const TextRun& run, OutputStyle style);

}  // namespace foretoken::client
