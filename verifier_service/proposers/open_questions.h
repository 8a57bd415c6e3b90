// SPDX-License-Identifier: Apache-2.0
// The questions of one session that have no answer yet. A late answer comes after further questions, and still belongs
// to the question that was asked at its position.
//
//   questions.Add(10, now);
//   questions.Add(14, later);
//   questions.Answer(10);     // now
//   questions.WhenAsked(10);  // now, for a better tree at the same position
//
// Units: positions in tokens, times of a steady clock. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace foretoken::verifier {

class OpenQuestions {
 public:
  // An answer that is further behind is no longer told from a tree that nobody asked for.
  static constexpr size_t kMaxQuestions = 8;

  // Positions never decrease.
  void Add(uint64_t position, absl::Time asked) {
    if (questions_.size() == kMaxQuestions) questions_.erase(questions_.begin());
    questions_.push_back({.position = position, .asked = asked});
  }
  // Returns when the tree at this position was asked for, and closes the questions up to there. A proposer may have had
  // further tokens than at the question. Unset: no open question asks for the tree, for example because it is the
  // second one at its position.
  std::optional<absl::Time> Answer(uint64_t position) {
    auto end = questions_.begin();
    while (end != questions_.end() && end->position <= position) ++end;
    if (end == questions_.begin()) return std::nullopt;
    last_answer_ = {.position = position, .asked = (end - 1)->asked};
    questions_.erase(questions_.begin(), end);
    return last_answer_->asked;
  }
  // When the trees at this position were asked for, if the last answer was there. A proposer that grows its tree sends
  // better ones after it.
  std::optional<absl::Time> WhenAsked(uint64_t position) const {
    if (!last_answer_.has_value() || last_answer_->position != position) return std::nullopt;
    return last_answer_->asked;
  }

 private:
  struct Question {
    uint64_t position = 0;
    absl::Time asked;
  };
  std::vector<Question> questions_;
  std::optional<Question> last_answer_;
};

}  // namespace foretoken::verifier
