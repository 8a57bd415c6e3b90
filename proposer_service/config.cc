// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/config.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "proposer_service/features/load_drafter.h"

namespace foretoken::proposer {
namespace {

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t last) {
  if (value >= 1 && value <= last) return absl::OkStatus();
  return rpc::InvalidField(field, absl::StrCat("expected 1 to ", last, ", got ", value));
}

absl::Status Validate(const SessionLimits& limits) {
  FT_RETURN_IF_ERROR(CheckRange("max_streams", limits.max_streams, 1 << 16));
  FT_RETURN_IF_ERROR(CheckRange("max_sessions", limits.max_sessions, 1 << 20));
  FT_RETURN_IF_ERROR(CheckRange("max_total_tokens", limits.max_total_tokens, int64_t{1} << 40));
  if (!(limits.max_stream_share > 0 && limits.max_stream_share <= 1)) {
    return rpc::InvalidField("max_stream_share",
                             absl::StrCat("expected above 0, at most 1, got ", limits.max_stream_share));
  }
  // Token positions have 31 bits.
  FT_RETURN_IF_ERROR(CheckRange("max_context_tokens", limits.max_context_tokens, 1 << 30));
  return CheckRange("max_tree_nodes", limits.max_tree_nodes, speculation::kMaxTreeNodes);
}

}  // namespace

absl::Status ValidateMethod(absl::string_view method) {
  if (method == "ngram" || method == "suffix" || method == "draft") return absl::OkStatus();
  if (ReadsFeatures(method)) return absl::OkStatus();
  return rpc::InvalidField(
      "method", absl::StrCat("expected ngram, suffix, draft, dflash, eagle, eagle3, mlp_speculator or medusa, got '",
                             method, "'"));
}

absl::Status Validate(const Config& config) {
  FT_RETURN_IF_ERROR(ValidateMethod(config.method));
  if (config.method == "draft") FT_RETURN_IF_ERROR(Validate(config.draft));
  if (ReadsFeatures(config.method)) FT_RETURN_IF_ERROR(ValidateFeatureDraft(config.method, config.draft));
  FT_RETURN_IF_ERROR(Validate(config.limits));
  FT_RETURN_IF_ERROR(Validate(config.ngram));
  return Validate(config.suffix);
}

}  // namespace foretoken::proposer
