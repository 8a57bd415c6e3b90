// SPDX-License-Identifier: Apache-2.0
#include "client/commands/color_flag.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/terminal.h"

ABSL_FLAG(std::string, color, "auto", "auto, always or never: colour the text of accepted guesses");

namespace foretoken::client {

absl::StatusOr<bool> ColorFromFlags() {
  const std::string color = absl::GetFlag(FLAGS_color);
  if (color != "auto" && color != "always" && color != "never") {
    return absl::InvalidArgumentError(absl::StrCat("--color: expected auto, always or never, got ", color));
  }
  return color == "always" || (color == "auto" && WantsColor(stdout, std::getenv("NO_COLOR")));
}

}  // namespace foretoken::client
