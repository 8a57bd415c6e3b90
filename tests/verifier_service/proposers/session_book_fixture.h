// SPDX-License-Identifier: Apache-2.0
// A session book for two proposers, with short helpers for its calls.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {

inline const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
inline constexpr Backoff kRetry{.initial = absl::Milliseconds(100), .max = absl::Seconds(1)};
inline const std::vector<int32_t> kTokens = {5};
inline constexpr uint32_t kEverybody = ~0u;

class SessionBookTest : public ::testing::Test {
 protected:
  void Open(SequenceId id, const std::vector<int32_t>& tokens, uint32_t proposers = 1,
            uint32_t told_proposers = kEverybody) {
    book_.Open({.sequence_id = id,
                .token_ids = tokens,
                .seed = 9,
                .tenant = "t",
                .proposers = proposers,
                .told_proposers = told_proposers},
               kNow);
  }
  v1::ProposeRequest Next(ReplicaId replica) { return book_.NextRequest(replica, kNow).value_or(v1::ProposeRequest()); }
  AnswerVerdict Tree(ReplicaId replica, uint64_t session_id, uint64_t position, absl::Time now = kNow) {
    CheckedAnswer answer;
    answer.trees.push_back({session_id, speculation::TokenTree{.position = position, .nodes = {{1, -1, .5f, 1}}}});
    return book_.TakeAnswer(replica, std::move(answer), now);
  }
  void Refuse(ReplicaId replica, uint64_t session_id, absl::Time now = kNow) {
    CheckedAnswer answer;
    answer.refused = {{.session_id = session_id}};
    book_.TakeAnswer(replica, std::move(answer), now);
  }
  void Unknown(ReplicaId replica, uint64_t session_id, absl::Time now = kNow) {
    CheckedAnswer answer;
    answer.unknown_session_ids = {session_id};
    book_.TakeAnswer(replica, std::move(answer), now);
  }

  SessionBook book_{2, kRetry, 1};
};

}  // namespace foretoken::verifier
