// SPDX-License-Identifier: Apache-2.0
// The flag --clients of bench and simulate.
#pragma once

#include <cstdint>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(int32_t, clients);
