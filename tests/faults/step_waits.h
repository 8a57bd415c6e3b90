// SPDX-License-Identifier: Apache-2.0
// How long a verifier's steps waited for proposers, as its streams report it. The verifier has --allow_step_reports.
//
//   StepWaits waits;
//   StreamLoad load(client, waits.Watch({.num_streams = 2}));
//   ...                               // harm the proposers, end the load
//   waits.ExpectThatNoneIsTooLong();
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/integration/stream_load.h"

namespace foretoken {

class StepWaits {
 public:
  // The same load, whose requests ask for reports.
  LoadOptions Watch(LoadOptions load) {
    load.make_request = [make = load.make_request](int index) {
      v1::GenerateRequest request = make(index);
      request.mutable_speculation()->set_report_steps(true);
      return request;
    };
    load.on_response = [this](const v1::GenerateResponse& response) { Take(response); };
    return load;
  }

  // Expects that each step waited for proposers for at most a quarter of its expected time, which is the time of the
  // step before.
  void ExpectThatNoneIsTooLong() const {
    absl::MutexLock lock(&mutex_);
    EXPECT_GT(times_.size(), 100);
    float longest_ms = 0;
    size_t num_late = 0;
    for (const auto& [step, times] : times_) {
      const auto before = times_.find(step - 1);
      if (before == times_.end()) continue;
      const v1::StepTimes& last = before->second;
      const double late_ms = times.wait_ms() - (last.forward_ms() + last.draw_ms()) / 4;
      EXPECT_LT(late_ms, kMaxLateMs) << "step " << step;
      if (late_ms > kRarelyLateMs) ++num_late;
      longest_ms = std::max(longest_ms, times.wait_ms());
    }
    EXPECT_LE(num_late, times_.size() / 20);
    std::printf("%zu steps, the longest wait took %.2f ms, %zu waits ended late\n", times_.size(), longest_ms,
                num_late);
  }

 private:
  // A wait ends late on a machine without a free core. A slow network adds 400 ms to an answer, so a wait without the
  // bound would take longer.
  static constexpr double kMaxLateMs = 100;
  // Only one of twenty waits may end later than this.
  static constexpr double kRarelyLateMs = 10;

  void Take(const v1::GenerateResponse& response) {
    absl::MutexLock lock(&mutex_);
    for (const v1::StepReport& report : response.steps()) times_[report.step()] = report.times();
  }

  mutable absl::Mutex mutex_;
  std::map<uint64_t, v1::StepTimes> times_;  // by step
};

}  // namespace foretoken
