// SPDX-License-Identifier: Apache-2.0
// The results of a benchmark: numbers, some with a bound that must hold.
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
  // Contains the true value with 95 % confidence, or with less if there are few values.
  std::optional<Interval> interval;
};

class Findings {
 public:
  void Add(Finding finding);
  // Prints each finding when it is added, from now on. So a long bench that is stopped has printed its results so far.
  void PrintAsFound() { prints_as_found_ = true; }
  // Prints the findings not printed yet: as a table, or as one JSON array: [{"what", "value", "unit", "at_least" or
  // "at_most", "met" (null: too noisy to tell), "interval"}].
  void Print(bool as_json) const;
  // The number of findings whose bound does not hold, whatever the true value in the interval is.
  int num_missed() const { return num_missed_; }
  // Those whose bound some values in the interval meet, and others do not.
  int num_open() const { return num_open_; }

 private:
  std::vector<Finding> findings_;  // not printed yet
  bool prints_as_found_ = false;
  int num_missed_ = 0;
  int num_open_ = 0;
};

}  // namespace foretoken::bench
