// SPDX-License-Identifier: Apache-2.0
#include "client/commands/output_style.h"

#include <unistd.h>

#include "client/commands/color_flag.h"
#include "client/terminal.h"
#include "common/base/status_macros.h"

namespace foretoken::client {

absl::StatusOr<OutputStyle> OutputStyleFromFlags() {
  FT_ASSIGN_OR_RETURN(const bool has_color, ColorFromFlags());
  if (has_color) return OutputStyle::kColor;
  return isatty(STDOUT_FILENO) == 1 ? OutputStyle::kVisibleControls : OutputStyle::kPlain;
}

std::string Show(const TextRun& run, OutputStyle style) {
  return style == OutputStyle::kPlain ? run.text : ForTerminal(run, style == OutputStyle::kColor);
}

}  // namespace foretoken::client
