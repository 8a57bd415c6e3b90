// SPDX-License-Identifier: Apache-2.0
// A whole verifier: model, proposer pool, engine, service and server, put together and taken apart in the right order.
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<Verifier> verifier,
//                       Verifier::Start(config, {.proposers = specs, .metrics = &metrics, .draw_bits = ...}));
//   verifier->ServeUntilSignal();
//
// Health says SERVING as long as the engine steps or has nothing to do: see Config::engine_stall_timeout.
// Draining: health says NOT_SERVING, what is new is refused with UNAVAILABLE, what runs gets Config::drain_grace to
// end, and then ends with FINISH_REASON_SHUTDOWN, or with UNAVAILABLE where nothing was generated yet. Four seconds
// after the grace everything has ended, also calls whose clients do not read.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "verifier_service/api/generation_service.h"
#include "verifier_service/api/periodic_task.h"
#include "verifier_service/config.h"
#include "verifier_service/device_failure_guard.h"
#include "verifier_service/engine/stall_detector.h"
#include "verifier_service/loaded_model.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

struct VerifierEnvironment {
  std::vector<ProposerSpec> proposers;  // embedded ones with their channel
  telemetry::Metrics* metrics = nullptr;
  DrawBits draw_bits;
  model::LoadProgress progress;
};

class Verifier {
 public:
  // Serves when it returns. Errors: whatever is wrong with the configuration, the model or the addresses.
  static absl::StatusOr<std::unique_ptr<Verifier>> Start(const Config& config, VerifierEnvironment environment);
  ~Verifier();

  int port() const { return server_->port(); }
  EngineStats GetStats() const { return engine_->GetStats(); }

  // Until SIGTERM or SIGINT, and then drains.
  void ServeUntilSignal();
  void Drain();

 private:
  explicit Verifier(const Config& config) : config_(config), stall_detector_(config.engine_stall_timeout) {}
  absl::Status StartEngine(VerifierEnvironment& environment);
  absl::Status StartServing(VerifierEnvironment& environment);
  ServedModel DescribeModel() const;
  void FinishCalls();
  void LookAfterEngine();

  const Config config_;
  // In this order: each uses those above it.
  std::unique_ptr<LoadedModel> model_;
  Publisher publisher_;
  std::unique_ptr<ProposerPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CallMetrics> call_metrics_;
  std::shared_ptr<EngineCollector> collector_;  // shared with the metrics server, as its library wants it
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<DeviceFailureGuard> failure_guard_;
  StallDetector stall_detector_;
  prometheus::Gauge* is_stalled_ = nullptr;  // 1 or 0
  std::unique_ptr<PeriodicTask> stall_watch_;
  std::unique_ptr<telemetry::MetricsServer> metrics_server_;
};

}  // namespace foretoken::verifier
