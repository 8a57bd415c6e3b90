// SPDX-License-Identifier: Apache-2.0
#include "client/json_flag.h"

#include "absl/flags/flag.h"

ABSL_FLAG(bool, json, false, "Print JSON, for machines");
