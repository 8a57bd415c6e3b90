// SPDX-License-Identifier: Apache-2.0
// The flags of bench and simulate that say how many requests come: --clients or --rate.
#pragma once

#include <cstdint>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(int32_t, clients);
ABSL_DECLARE_FLAG(double, rate);
