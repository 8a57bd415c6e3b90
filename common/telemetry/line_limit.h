// SPDX-License-Identifier: Apache-2.0
// Bounds the log lines that others can cause: a peer or a client that can cause one line can cause thousands per
// second. A LineLimit bounds the lines of one cause. LineLimits has a LineLimit for each cause, so that the lines of
// one cause do not hide the lines of another.
//
// Example, for a line about a peer:
//   LineLimit limit;  // one per cause, for example per peer
//   if (auto line = limit.Pass(absl::StrCat("peer says ", base::Quoted(name)), now)) lines.push_back(*std::move(line));
//   ...               // after the lock that guards all this is released:
//   for (const std::string& line : lines) spdlog::warn("{}", line);
//
// Threads: one at a time for a LineLimit, any for LineLimits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken::telemetry {

// Passes a few lines at once, and then one per period. The next line that passes gives the number of lines that did
// not.
class LineLimit {
 public:
  static constexpr int kBurst = 5;
  static constexpr absl::Duration kPeriod = absl::Seconds(10);  // earns a line; at most kBurst are saved

  // Returns the line to write; unset: the line is left out. `now` comes from a steady clock.
  std::optional<std::string> Pass(std::string line, absl::Time now);
  // Counts a line that the caller leaves out because it would repeat an earlier one.
  void LeaveOut() { ++num_left_out_; }

 private:
  int num_saved_ = kBurst;
  absl::Time earning_since_ = absl::InfinitePast();  // start of the period that earns the next line; before the first
                                                     // line: the infinite past
  uint64_t num_left_out_ = 0;
};

class LineLimits {
 public:
  // As LineLimit::Pass, for the lines of this cause. Causes are names in this program, so they are few.
  std::optional<std::string> Pass(const std::string& cause, std::string line, absl::Time now) {
    absl::MutexLock lock(&mutex_);
    return limits_[cause].Pass(std::move(line), now);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, LineLimit> limits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::telemetry
