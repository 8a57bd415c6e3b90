// SPDX-License-Identifier: Apache-2.0
// A bound on log lines that others can cause: a peer or a client that can cause one line can cause thousands in a
// second.
//
// Example, for a line about a peer:
//   LineLimit limit;  // one per cause: of this peer, say
//   if (auto line = limit.Pass(absl::StrCat("peer says ", base::Quoted(name)), now)) lines.push_back(*std::move(line));
//   ...               // without the lock under which all this happened:
//   for (const std::string& line : lines) spdlog::warn("{}", line);
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace foretoken::telemetry {

// Lets a few lines pass at once, and then one per period. The next line that passes says how many did not.
class LineLimit {
 public:
  static constexpr int kBurst = 5;
  static constexpr absl::Duration kPeriod = absl::Seconds(10);  // earns a line; at most kBurst are saved

  // The line to be written, or unset. `now` is of a steady clock.
  std::optional<std::string> Pass(std::string line, absl::Time now);
  // A line that would say nothing new counts as left out.
  void LeaveOut() { ++num_left_out_; }

 private:
  int num_saved_ = kBurst;
  absl::Time earning_since_ = absl::InfinitePast();  // of the next saved line; no line was written yet
  uint64_t num_left_out_ = 0;
};

}  // namespace foretoken::telemetry
