// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/config.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"

namespace foretoken::proposer {
namespace {

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t last) {
  if (value >= 1 && value <= last) return absl::OkStatus();
  return rpc::InvalidField(field, absl::StrCat("expected 1 to ", last, ", got ", value));
}

}  // namespace

absl::Status ValidateMethod(absl::string_view method) {
  if (method == "ngram" || method == "suffix" || method == "draft") return absl::OkStatus();
  return rpc::InvalidField("method", absl::StrCat("expected ngram, suffix or draft, got '", method, "'"));
}

absl::Status Validate(const Config& config) {
  FT_RETURN_IF_ERROR(ValidateMethod(config.method));
  if (config.method == "draft") FT_RETURN_IF_ERROR(Validate(config.draft));
  FT_RETURN_IF_ERROR(CheckRange("max_sessions", config.limits.max_sessions, 1 << 20));
  // Token positions have 31 bits.
  FT_RETURN_IF_ERROR(CheckRange("max_context_tokens", config.limits.max_context_tokens, 1 << 30));
  FT_RETURN_IF_ERROR(CheckRange("max_tree_nodes", config.limits.max_tree_nodes, speculation::kMaxTreeNodes));
  FT_RETURN_IF_ERROR(Validate(config.ngram));
  return Validate(config.suffix);
}

}  // namespace foretoken::proposer
