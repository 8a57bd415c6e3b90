// SPDX-License-Identifier: Apache-2.0
// The flag --model: for commands that call a server the name of its model, and for those that load one its directory.
#pragma once

#include <string>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(std::string, model);
