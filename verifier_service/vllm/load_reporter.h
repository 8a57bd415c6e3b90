// SPDX-License-Identifier: Apache-2.0
// Describes how busy the engine is, in the words of vLLM's contract, from the counters that the engine publishes.
//
//   LoadReporter reporter({.stats = [&] { return engine.GetStats(); }, .max_running_samples = 64});
//   const engine_api::SchedulerLoad load = reporter.Report();
//
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "verifier_service/engine/engine.h"
#include "vllm/engine.pb.h"

namespace foretoken::verifier {

namespace engine_api = ::vllm::grpc::engine;

struct LoadReporterParts {
  std::function<EngineStats()> stats;
  int32_t max_running_samples = 0;
  Clock now = SteadyNow;
};

class LoadReporter {
 public:
  explicit LoadReporter(LoadReporterParts parts);

  engine_api::SchedulerLoad Report();

 private:
  // Generated tokens per second since the last mark. Sets a new mark if that one is a second old.
  double Throughput(uint64_t num_tokens);

  const LoadReporterParts parts_;
  absl::Mutex mutex_;
  absl::Time marked_at_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_marked_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  double tokens_per_second_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace foretoken::verifier
