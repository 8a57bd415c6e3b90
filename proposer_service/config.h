// SPDX-License-Identifier: Apache-2.0
// Everything that can be set about a proposer service, checked once.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proposer_service/draft_proposer.h"
#include "proposer_service/ngram.h"
#include "proposer_service/suffix.h"

namespace foretoken::proposer {

struct SessionLimits {
  int32_t max_sessions = 1024;           // over all streams; further ones are refused
  int64_t max_context_tokens = 1 << 17;  // per session, prompt included; longer ones are refused
  int32_t max_tree_nodes = 256;          // per tree; larger budgets are cut. At most speculation::kMaxTreeNodes
};

struct Config {
  std::string method = "ngram";
  SessionLimits limits = {};
  NgramOptions ngram = {};
  SuffixOptions suffix = {};
  DraftOptions draft = {};  // for method "draft"
};

// INVALID_ARGUMENT names the field, expected and got.
absl::Status ValidateMethod(absl::string_view method);
absl::Status Validate(const Config& config);

}  // namespace foretoken::proposer
