// SPDX-License-Identifier: Apache-2.0
#include "client/commands/load_flags.h"

#include "absl/flags/flag.h"

ABSL_FLAG(int32_t, clients, 1, "Clients, each with one request at a time");
ABSL_FLAG(double, rate, 0, "Requests per second, at random times, however long they take; 0: as --clients says");
