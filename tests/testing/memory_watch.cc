// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/memory_watch.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(100);

int64_t Median(std::vector<int64_t> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

MemoryGrowth GrowthOf(const std::string& name, const std::vector<int64_t>& samples) {
  FT_CHECK(samples.size() >= 10);
  const auto third = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 3);
  const auto tenth = static_cast<ptrdiff_t>(samples.size() / 10);
  return {.name = name,
          .begin_bytes = Median({third, third + tenth}),
          .end_bytes = Median({samples.end() - tenth, samples.end()})};
}

MemoryWatch::MemoryWatch(std::vector<Watched> processes)
    : processes_(std::move(processes)), samples_(processes_.size()), thread_([this] { Watch(); }) {}

void MemoryWatch::Watch() {
  for (; !is_over_; absl::SleepFor(kPeriod)) {
    for (size_t i = 0; i < processes_.size(); ++i) samples_[i].push_back(processes_[i].second->MemoryBytes());
  }
}

void MemoryWatch::End() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
}

std::vector<MemoryGrowth> MemoryWatch::Finish() {
  End();
  std::vector<MemoryGrowth> growths;
  for (size_t i = 0; i < processes_.size(); ++i) growths.push_back(GrowthOf(processes_[i].first, samples_[i]));
  return growths;
}

}  // namespace foretoken::testing
