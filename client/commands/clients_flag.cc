// SPDX-License-Identifier: Apache-2.0
#include "client/commands/clients_flag.h"

#include "absl/flags/flag.h"

ABSL_FLAG(int32_t, clients, 1, "Number of requests that run at a time");
