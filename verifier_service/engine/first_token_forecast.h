// SPDX-License-Identifier: Apache-2.0
// The least time until the first token of a request that comes now. A request with an earlier deadline is refused,
// because it would take a place in the line in vain. The forecast is optimistic on purpose:
//   - All running samples may end at once, so as many requests at the front of the line as can run do not wait.
//   - The line may move twice as fast as lately. Requests that were cancelled while they waited count as movement.
//   - A step may be twice as fast as the last steps, and the prefix cache may hold the whole prompt.
// While nothing waits, only the step counts.
//
// Units: durations of the engine's clock. Threads: the engine's; LeastWait from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

class FirstTokenForecast {
 public:
  explicit FirstTokenForecast(int32_t max_running) : max_running_(max_running) {}

  // `num_left` counts the entries that have left the line since the start.
  void ObserveLine(uint64_t num_left, bool has_waiting, absl::Time now);
  // The duration of a step that draws one token and does nothing else.
  void ObserveStep(absl::Duration one_row_step) { step_ns_.store(absl::ToInt64Nanoseconds(one_row_step)); }

  // For a request with `num_ahead` requests before it in the line.
  absl::Duration LeastWait(int64_t num_ahead) const;

 private:
  struct Mark {
    absl::Time time;
    uint64_t num_left = 0;
  };

  const int32_t max_running_;
  std::optional<Mark> mark_;         // the beginning of the current measurement of the pace
  std::atomic<int64_t> pace_ns_{0};  // the time between two entries that leave the line; 0: unknown
  std::atomic<int64_t> step_ns_{0};
};

// The least time to compute `num_rows` rows of a prompt, in steps of at most `max_rows` rows. As optimistic as above.
absl::Duration LeastPromptTime(int32_t num_rows, int32_t max_rows, const StepCost& cost);

}  // namespace foretoken::verifier
