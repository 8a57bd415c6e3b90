// SPDX-License-Identifier: Apache-2.0
// The time of work on a number of threads, and statistics over many such times.
#pragma once

#include <time.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace foretoken::bench {

// 0 means one thread per core.
inline int NumThreads(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Seconds since an arbitrary moment. Work on one thread is timed by that thread's own clock, which stands still while
// the thread does not run. Work on more threads is timed by the wall clock.
inline double Now(int num_threads) {
  timespec now;
  clock_gettime(num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
double Seconds(int num_threads, Work&& work) {
  const double begin = Now(num_threads);
  work();
  return Now(num_threads) - begin;
}

// `part` 0.5 is the median. There must be at least one value.
inline double Quantile(std::vector<double> values, double part) {
  const auto place = values.begin() + static_cast<ptrdiff_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

inline double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

// The median of each round's ratio. Noise over a whole round cancels.
inline double MedianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(ratios);
}

}  // namespace foretoken::bench
