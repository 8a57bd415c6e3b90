// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/load_reporter.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace foretoken::verifier {
namespace {

// Shorter times would measure single steps.
constexpr absl::Duration kLeastTime = absl::Seconds(1);

int32_t Capped(int64_t count) {
  return static_cast<int32_t>(std::clamp<int64_t>(count, 0, std::numeric_limits<int32_t>::max()));
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

LoadReporter::LoadReporter(LoadReporterParts parts) : parts_(std::move(parts)), marked_at_(parts_.now()) {}

double LoadReporter::Throughput(uint64_t num_tokens) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = parts_.now();
  // Another thread may have counted later and marked before.
  if (now - marked_at_ >= kLeastTime && num_tokens >= num_marked_tokens_) {
    tokens_per_second_ = static_cast<double>(num_tokens - num_marked_tokens_) / absl::ToDoubleSeconds(now - marked_at_);
    marked_at_ = now;
    num_marked_tokens_ = num_tokens;
  }
  return tokens_per_second_;
}

engine_api::SchedulerLoad LoadReporter::Report() {
  const EngineStats stats = parts_.stats();
  const int32_t num_used_blocks = stats.num_blocks - stats.num_free_blocks - stats.num_cached_blocks;
  engine_api::SchedulerLoad load;
  load.set_num_running_reqs(stats.num_running);
  load.set_num_waiting_reqs(Capped(stats.num_queued_samples));
  load.set_num_total_reqs(Capped(stats.num_running + stats.num_queued_samples));
  load.set_num_used_tokens(Capped(int64_t{num_used_blocks} * kernels::kKvBlockSize));
  load.set_max_total_num_tokens(Capped(int64_t{stats.num_blocks} * kernels::kKvBlockSize));
  load.set_token_usage(Ratio(num_used_blocks, stats.num_blocks));
  load.set_gen_throughput(Throughput(stats.num_generated_tokens));
  const auto num_cached = static_cast<double>(stats.num_cached_tokens);
  load.set_cache_hit_rate(Ratio(num_cached, num_cached + static_cast<double>(stats.num_prompt_tokens)));
  load.set_utilization(Ratio(stats.num_running, parts_.max_running_samples));
  load.set_max_running_requests(parts_.max_running_samples);
  load.set_num_waiting_uncached_tokens(Capped(stats.num_queued_tokens));
  return load;
}

}  // namespace foretoken::verifier
