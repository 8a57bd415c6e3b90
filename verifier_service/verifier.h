// SPDX-License-Identifier: Apache-2.0
// A whole verifier: model, proposer pool, engine, service and server, started and stopped in the right order.
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<Verifier> verifier,
//                       Verifier::Start(config, {.proposers = specs, .metrics = &metrics, .draw_bits = ...}));
//   verifier->ServeUntilSignal();
//
// Health says SERVING while the engine steps or has no work (Config::engine_stall_timeout).
// Draining: health says NOT_SERVING, and new calls are refused with UNAVAILABLE. Running calls get Config::drain_grace
// to end. After that the verifier ends them with FINISH_REASON_SHUTDOWN, or with UNAVAILABLE if they have generated
// nothing yet. Four seconds after the grace every call has ended, even if its client does not read.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/periodic_task.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "common/telemetry/metrics_server.h"
#include "verifier_service/api/client_tokens.h"
#include "verifier_service/api/generation_service.h"
#include "verifier_service/config.h"
#include "verifier_service/device_failure_guard.h"
#include "verifier_service/engine/stall_detector.h"
#include "verifier_service/loaded_model.h"
#include "verifier_service/proposers/proposer_pool.h"
#include "verifier_service/vllm/vllm_engine_service.h"
#include "verifier_service/vllm/vllm_metrics.h"

namespace foretoken::verifier {

struct VerifierEnvironment {
  std::vector<ProposerSpec> proposers;  // embedded proposers have their channel set
  telemetry::Metrics* metrics = nullptr;
  DrawBits draw_bits;
  tracing::Tracer tracer = {};
  model::LoadProgress progress;
};

class Verifier {
 public:
  // The verifier serves when Start returns. Errors: a bad configuration, model or address.
  static absl::StatusOr<std::unique_ptr<Verifier>> Start(const Config& config, VerifierEnvironment environment);
  ~Verifier();

  int port() const { return server_->port(); }
  EngineStats GetStats() const { return engine_->GetStats(); }

  // Serves until SIGTERM or SIGINT, and then drains.
  void ServeUntilSignal();
  void Drain();

 private:
  explicit Verifier(const Config& config) : config_(config), stall_detector_(config.engine_stall_timeout) {}
  absl::Status StartEngine(VerifierEnvironment& environment,
                           std::shared_ptr<grpc::ChannelCredentials> proposer_credentials);
  absl::Status StartServing(VerifierEnvironment& environment);
  void AddCollectedMetrics();
  ServedModel DescribeModel() const;
  void MakeServices(VerifierEnvironment& environment);
  void MakeVllmService();
  void FinishCalls();
  absl::Status EngineStalled() const;  // the error of calls meanwhile
  void LookAfterEngine();

  const Config config_;
  // The order matters: each member uses the members above it.
  std::unique_ptr<LoadedModel> model_;
  Publisher publisher_;
  std::unique_ptr<ProposerPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CallMetrics> call_metrics_;
  std::unique_ptr<ClientTokens> client_tokens_;       // null: clients need no token
  std::unique_ptr<base::PeriodicTask> tokens_watch_;  // the same
  std::unique_ptr<GrammarCompiler> grammars_;
  std::atomic<bool> refuses_calls_{false};   // drains, or a device has failed
  prometheus::Gauge* is_stalled_ = nullptr;  // 1 or 0
  std::unique_ptr<GenerateCalls> calls_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<VllmEngineService> vllm_service_;  // null: the server leaves that contract out
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<DeviceFailureGuard> failure_guard_;
  StallDetector stall_detector_;
  EngineState engine_state_ = EngineState::kSteps;  // as last seen
  std::unique_ptr<base::PeriodicTask> stall_watch_;
  std::unique_ptr<telemetry::MetricsServer> metrics_server_;
};

}  // namespace foretoken::verifier
