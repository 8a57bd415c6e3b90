// SPDX-License-Identifier: Apache-2.0
// What a request needs before its deadline. One with an earlier deadline is refused, because it would wait or be
// computed in vain.
//
// Nobody can have a first token sooner than LeastWait and LeastPromptTime. These forecasts are optimistic on purpose:
//   - All running samples may end at once, so as many requests at the front of the line as can run do not wait.
//   - The line may move twice as fast as lately. Requests that were cancelled while they waited count as movement.
//   - A step may be twice as fast as the fastest one so far. A slow neighbour of an hour ago thus refuses nobody.
//   - Only the requests of the same tenant count as waiting before it. Other tenants may have nothing more to run.
//   - Only full steps of a prompt count, and the prefix cache may hold the whole prompt.
//
// RunTime says how long a whole output takes lately, and is not optimistic. It is asked only while others wait.
// Otherwise the requests that come to the front of a long line would always have just too little time left, and the
// engine would compute for requests that all end before their outputs do.
//
// Units: durations of the engine's clock. Threads: the engine's; LeastWait from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace foretoken::verifier {

class DeadlineForecast {
 public:
  DeadlineForecast(int32_t max_running, int32_t max_step_rows)
      : max_running_(max_running), max_step_rows_(max_step_rows) {}

  // `num_left` counts the entries that have left the line since the start.
  void ObserveLine(uint64_t num_left, bool has_waiting, absl::Time now);
  void ObserveStep(int32_t num_rows, absl::Duration length);
  // A sample has ended, for whatever reason, after running for so long.
  void ObserveRun(int32_t num_tokens, absl::Duration length);

  // Until a request with `num_ahead` requests of its tenant before it in the line has had a step.
  absl::Duration LeastWait(int64_t num_ahead) const;
  // To compute `num_rows` rows of a prompt.
  absl::Duration LeastPromptTime(int32_t num_rows) const;
  // To run for so many tokens, with the prompt.
  absl::Duration RunTime(double num_tokens) const;

 private:
  struct Mark {
    absl::Time time;
    uint64_t num_left = 0;
  };

  const int32_t max_running_, max_step_rows_;
  std::optional<Mark> mark_;               // the beginning of the current measurement of the pace
  std::atomic<int64_t> pace_ns_{0};        // the time between two entries that leave the line; 0: unknown
  std::atomic<int64_t> least_step_ns_{0};  // of any number of rows; 0: unknown
  std::optional<absl::Duration> least_full_step_;
  absl::Duration run_time_;  // of a sample: a moving sum
  double run_tokens_ = 0;    // that samples generated in it
};

}  // namespace foretoken::verifier
