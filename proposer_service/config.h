// SPDX-License-Identifier: Apache-2.0
// The configuration of a proposer service. Validate checks it once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/suffix/suffix.h"

namespace foretoken::proposer {

// How much of a proposer the verifiers may use. The proposer refuses a session beyond a limit. The sequence then goes
// on without that proposer's guesses.
struct SessionLimits {
  int32_t max_streams = 64;     // open at once; the service ends further streams
  int32_t max_sessions = 2048;  // over all streams
  // Tokens in the contexts of all sessions, including contexts that are still arriving. A token of a session takes up
  // to 136 bytes in the n-gram proposer and some 50 bytes in the suffix proposer: 1.1 GiB and 0.4 GiB. 32 bytes of a
  // mask of allowed tokens count as one token.
  int64_t max_total_tokens = 1 << 23;
  float max_stream_share = 0.5f;         // of max_sessions and max_total_tokens, per stream; above 0, at most 1
  int64_t max_context_tokens = 1 << 17;  // per session, prompt included
  // Of features of the target that a stream's sessions have received and not used yet.
  int64_t max_stream_feature_bytes = 16 << 20;
  absl::Duration max_piece_time = absl::Seconds(30);  // for a verifier to take a part of a projection
  int32_t max_tree_nodes = 256;  // per tree; the service cuts larger budgets. At most speculation::kMaxTreeNodes

  // At least 1.
  int32_t max_stream_sessions() const { return std::max(static_cast<int32_t>(ShareOf(max_sessions)), 1); }
  int64_t max_stream_tokens() const { return ShareOf(max_total_tokens); }
  int64_t max_session_tokens() const { return std::min(max_context_tokens, max_stream_tokens()); }

 private:
  int64_t ShareOf(int64_t whole) const {
    return static_cast<int64_t>(static_cast<double>(max_stream_share) * static_cast<double>(whole));
  }
};

struct Config {
  std::string method = "ngram";
  SessionLimits limits = {};
  NgramOptions ngram = {};
  SuffixOptions suffix = {};
  DraftOptions draft = {};  // for method "draft", and for methods that read the target's hidden states
};

// INVALID_ARGUMENT names the field, expected and got.
absl::Status ValidateMethod(absl::string_view method);
absl::Status Validate(const Config& config);

}  // namespace foretoken::proposer
