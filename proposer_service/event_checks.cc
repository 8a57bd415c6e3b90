// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/event_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"
#include "common/rpc/proposal_protocol.h"
#include "common/tracing/trace_context.h"

namespace foretoken::proposer {
namespace {

template <typename T>
Refusal Invalid(absl::string_view field, absl::string_view expected, T got) {
  return {.reason = v1::REFUSAL_REASON_INVALID, .detail = absl::StrCat(field, ": expected ", expected, ", got ", got)};
}

// An unset rule, or a rule that is newer than this build, counts as the keyed draw: the proposer then sends guesses,
// and guesses are exact under any rule.
kernels::VerificationRule Rule(v1::VerificationRule rule) {
  return rule == v1::VERIFICATION_RULE_REJECTION_SAMPLING ? kernels::VerificationRule::kRejectionSampling
                                                          : kernels::VerificationRule::kKeyedDraw;
}

}  // namespace

rpc::MessageBounds RequestBounds() {
  constexpr size_t kMaxEvents = rpc::MessageBounds::kMaxElements;  // of all kinds together
  constexpr size_t kMaxTokens = size_t{4} << 20;                   // as many as a message of 4 MiB can hold
  constexpr size_t kMaxNameBytes = 256;
  return {*v1::ProposeRequest::descriptor(),
          {{.path = "opens", .max_count = kMaxEvents},
           {.path = "opens.token_ids", .max_count = kMaxTokens},
           {.path = "opens.tenant", .max_bytes = kMaxNameBytes},
           {.path = "opens.traceparent", .max_bytes = kMaxNameBytes},
           {.path = "opens.tracestate", .max_bytes = tracing::kMaxTracestateBytes},
           {.path = "opens.allowed_tokens", .max_bytes = rpc::kMaxAllowedTokensBytes},
           {.path = "advances", .max_count = kMaxEvents},
           {.path = "advances.token_ids", .max_count = kMaxTokens},
           {.path = "advances.allowed_tokens", .max_bytes = rpc::kMaxAllowedTokensBytes},
           {.path = "closes", .max_count = kMaxEvents},
           {.path = "features", .max_count = kMaxEvents},
           {.path = "features.dtype", .max_bytes = kMaxNameBytes},
           {.path = "features.values", .max_bytes = kMaxTokens},
           {.path = "vocabulary_fingerprint", .max_bytes = kMaxNameBytes}}};
}

std::optional<Refusal> CheckFeatures(const v1::FeatureChunk& chunk, const speculation::TargetFeatures& features,
                                     uint64_t position) {
  if (chunk.dtype() != rpc::kFeatureDtype) {
    return Invalid("features.dtype", rpc::kFeatureDtype, base::Quoted(chunk.dtype()));
  }
  const size_t position_bytes = static_cast<size_t>(features.width()) * sizeof(uint16_t);
  const size_t num_bytes = chunk.values().size();
  if (num_bytes == 0 || num_bytes % position_bytes != 0) {
    return Invalid("features.values", absl::StrCat("whole positions of ", position_bytes, " bytes"), num_bytes);
  }
  if (num_bytes > std::max(rpc::kMaxFeatureChunkBytes, position_bytes)) {
    return Invalid("features.values", absl::StrCat("at most ", rpc::kMaxFeatureChunkBytes, " bytes"), num_bytes);
  }
  const uint64_t num_positions = num_bytes / position_bytes;
  if (chunk.first_position() > position || num_positions > position - chunk.first_position()) {
    return Invalid("features", absl::StrCat("positions below ", position),
                   absl::StrCat(num_positions, " from ", chunk.first_position()));
  }
  return std::nullopt;
}

std::optional<Refusal> CheckIntroduction(const v1::OpenSession& open) {
  const v1::SamplingFilters& filters = open.filters();
  // Each condition is written so that NaN fails it.
  if (!(std::isfinite(filters.temperature()) && filters.temperature() >= 0)) {
    return Invalid("filters.temperature", "a number, at least 0", filters.temperature());
  }
  if (filters.top_k() > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return Invalid("filters.top_k", "below 2^31", filters.top_k());
  }
  if (filters.has_top_p() && !(filters.top_p() > 0 && filters.top_p() <= 1)) {
    return Invalid("filters.top_p", "above 0, at most 1", filters.top_p());
  }
  if (!(filters.min_p() >= 0 && filters.min_p() <= 1)) return Invalid("filters.min_p", "0 to 1", filters.min_p());
  if (open.tenant().size() > rpc::kMaxTenantBytes) {
    return Invalid("tenant", absl::StrCat("at most ", rpc::kMaxTenantBytes, " bytes"), open.tenant().size());
  }
  return std::nullopt;
}

std::optional<Refusal> CheckTokens(const google::protobuf::RepeatedField<uint32_t>& token_ids,
                                   const ProposerDescription& proposer) {
  const uint32_t num_tokens =
      proposer.num_tokens.has_value() ? static_cast<uint32_t>(*proposer.num_tokens) : rpc::kMaxTokenIds;
  for (int i = 0; i < token_ids.size(); ++i) {
    if (token_ids[i] >= num_tokens) {
      return Invalid(absl::StrCat("token_ids[", i, "]"), absl::StrCat("below ", num_tokens), token_ids[i]);
    }
  }
  return std::nullopt;
}

SessionIntroduction FromProto(const v1::OpenSession& open) {
  const v1::SamplingFilters& filters = open.filters();
  return {.rule = Rule(open.rule()),
          .seed = open.seed(),
          .sample_index = open.sample_index(),
          .temperature = filters.has_temperature() ? filters.temperature() : 1,
          .top_k = filters.top_k(),
          .top_p = filters.has_top_p() ? filters.top_p() : 1,
          .min_p = filters.min_p(),
          .tenant = open.tenant()};
}

}  // namespace foretoken::proposer
