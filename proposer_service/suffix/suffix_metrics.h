// SPDX-License-Identifier: Apache-2.0
// The metrics of a suffix proposer's memory of finished outputs.
#pragma once

#include <string>

#include "common/telemetry/metrics.h"
#include "proposer_service/suffix/suffix_memory.h"

namespace foretoken::proposer {

class SuffixMetrics {
 public:
  explicit SuffixMetrics(telemetry::Metrics& metrics);

  void ShowMemory(const SuffixMemory::Stats& stats);
  // The caller has just written or read the file.
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
