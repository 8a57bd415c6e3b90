// SPDX-License-Identifier: Apache-2.0
#include "common/base/version.h"

namespace foretoken::base {

const char* Version() { return FORETOKEN_VERSION; }

const char* Toolchain() { return FORETOKEN_TOOLCHAIN; }

}  // namespace foretoken::base
