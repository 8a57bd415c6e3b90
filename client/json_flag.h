// SPDX-License-Identifier: Apache-2.0
// --json: print for machines.
#pragma once

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(bool, json);
