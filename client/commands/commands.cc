// SPDX-License-Identifier: Apache-2.0
#include "client/commands/commands.h"

#include <iostream>

#include "absl/flags/flag.h"
#include "client/commands/interrupt.h"
#include "client/terminal.h"
#include "common/tokenizer/unicode/utf8.h"

ABSL_FLAG(bool, json, false, "Print JSON instead of text");

namespace foretoken::client {

// A server may send any bytes as its error, and terminals that do not read UTF-8 take some of them for controls.
int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "foretoken: " << absl::StatusCodeToString(status.code()) << ": "
            << EscapeControls(tokenizer::ValidUtf8(status.message())) << std::endl;
  return absl::IsCancelled(status) ? kInterruptedExitCode : 1;
}

}  // namespace foretoken::client
