// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_metrics.h"

#include <sys/stat.h>

namespace foretoken::proposer {

SuffixMetrics::SuffixMetrics(telemetry::Metrics& metrics)
    : outputs_(metrics.AddGauge("foretoken_suffix_outputs", "Finished outputs remembered.")),
      tokens_(metrics.AddGauge("foretoken_suffix_tokens", "Tokens of the remembered outputs.")),
      bytes_(metrics.AddGauge("foretoken_suffix_bytes", "Bytes of the suffix tree of the remembered outputs.")),
      tenants_(metrics.AddGauge("foretoken_suffix_tenants", "Tenants with a remembered output.")),
      forgotten_tokens_(metrics.AddCounter("foretoken_suffix_forgotten_tokens_total",
                                           "Tokens of outputs that made room for newer ones.")),
      skipped_outputs_(metrics.AddCounter("foretoken_suffix_skipped_outputs_total",
                                          "Outputs that were not learned because too many waited.")),
      snapshot_bytes_(metrics.AddGauge("foretoken_suffix_snapshot_bytes", "Size of the snapshot file.")),
      snapshot_time_(
          metrics.AddGauge("foretoken_suffix_snapshot_timestamp_seconds",
                           "Time of the last write of the snapshot file, since 1970; 0: there is no file.")) {}

void SuffixMetrics::ShowMemory(const SuffixMemory::Stats& stats) {
  outputs_.Set(static_cast<double>(stats.num_texts));
  tokens_.Set(static_cast<double>(stats.num_tokens));
  bytes_.Set(static_cast<double>(stats.num_bytes));
  tenants_.Set(static_cast<double>(stats.num_owners));
  forgotten_tokens_.Increment(static_cast<double>(stats.num_forgotten_tokens) - forgotten_tokens_.Value());
}

void SuffixMetrics::ShowSnapshot(const std::string& path) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) return;  // another process removed the file
  snapshot_bytes_.Set(static_cast<double>(file.st_size));
  snapshot_time_.Set(static_cast<double>(file.st_mtim.tv_sec));
}

}  // namespace foretoken::proposer
