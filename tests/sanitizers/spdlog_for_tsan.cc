// SPDX-License-Identifier: Apache-2.0
// Makes the logger before the first thread, in every executable of the tsan build. Else the first thread that logs
// makes it, and the compiler's guard of that is in the library, where ThreadSanitizer does not see it.
#include "spdlog/spdlog.h"

namespace {

[[maybe_unused]] const bool kHasLogger = spdlog::default_logger_raw() != nullptr;

}  // namespace
