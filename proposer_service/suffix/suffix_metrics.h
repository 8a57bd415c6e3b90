// SPDX-License-Identifier: Apache-2.0
// What a suffix proposer's memory of finished outputs holds, as metrics.
#pragma once

#include <string>

#include "common/telemetry/metrics.h"
#include "proposer_service/suffix/suffix_memory.h"

namespace foretoken::proposer {

class SuffixMetrics {
 public:
  explicit SuffixMetrics(telemetry::Metrics& metrics);

  void ShowMemory(const SuffixMemory::Stats& stats);
  // The file was written or read just now.
  void ShowSnapshot(const std::string& path);
  void CountSkippedOutput() { skipped_outputs_.Increment(); }

 private:
  prometheus::Gauge& outputs_;
  prometheus::Gauge& tokens_;
  prometheus::Gauge& bytes_;
  prometheus::Gauge& tenants_;
  prometheus::Counter& forgotten_tokens_;
  prometheus::Counter& skipped_outputs_;
  prometheus::Gauge& snapshot_bytes_;
  prometheus::Gauge& snapshot_time_;
};

}  // namespace foretoken::proposer
