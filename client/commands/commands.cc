// SPDX-License-Identifier: Apache-2.0
#include "client/commands/commands.h"

#include <iostream>

#include "absl/flags/flag.h"
#include "client/commands/interrupt.h"
#include "client/terminal.h"

ABSL_FLAG(bool, json, false, "Print JSON instead of text");

namespace foretoken::client {

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "foretoken: " << absl::StatusCodeToString(status.code()) << ": " << EscapeControls(status.message())
            << std::endl;
  return absl::IsCancelled(status) ? kInterruptedExitCode : 1;
}

}  // namespace foretoken::client
