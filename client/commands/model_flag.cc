// SPDX-License-Identifier: Apache-2.0
#include "client/commands/model_flag.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, model, "",
          "Name of the model; the server refuses any other than its own; default: the served model. For perplexity and "
          "selftest, which call no server: the checkpoint");
