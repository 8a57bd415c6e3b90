// SPDX-License-Identifier: Apache-2.0
// What a benchmark found: numbers, and for some of them what must hold.
//
//   Findings findings;
//   findings.Add({.what = "decode, batch 1", .value = 91.2, .unit = "% of the read", .at_least = 85});
//   findings.Print(absl::GetFlag(FLAGS_json));
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace foretoken::bench {

struct Interval {
  double low = 0;
  double high = 0;
};

struct Finding {
  std::string what;
  double value = 0;
  std::string unit;
  std::optional<double> at_least;
  std::optional<double> at_most;
  std::optional<Interval> interval;  // that holds the true value with a confidence of 95 %, or what few values give
};

class Findings {
 public:
  void Add(Finding finding);
  // From now on each finding is printed when it is added: a long bench that is ended early has said what it knew.
  void PrintAsFound() { prints_as_found_ = true; }
  // Those not printed yet: a table, or one JSON array: [{"what", "value", "unit", "at_least" or "at_most", "met",
  // "interval"}].
  void Print(bool as_json) const;

 private:
  std::vector<Finding> findings_;  // not printed yet
  bool prints_as_found_ = false;
};

}  // namespace foretoken::bench
