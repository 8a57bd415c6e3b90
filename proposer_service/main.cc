// SPDX-License-Identifier: Apache-2.0
// foretoken_proposer: serves token trees to verifiers until SIGTERM or SIGINT. Once ready it prints one line,
// "listening on HOST:PORT", to standard output.
#include <cstdio>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "common/telemetry/logging.h"
#include "common/telemetry/metrics.h"
#include "proposer_service/proposal_service.h"
#include "spdlog/spdlog.h"

ABSL_FLAG(std::string, listen, "0.0.0.0:50052", "HOST:PORT to serve on; port 0 takes a free one");
ABSL_FLAG(std::string, metrics_listen, "", "HOST:PORT of GET /metrics; empty: none");
ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warning, error or off");
ABSL_FLAG(absl::Duration, drain_grace, absl::Seconds(10), "how long streams may take to end after SIGTERM");
ABSL_FLAG(std::string, method, foretoken::proposer::Config().method, "how to guess: ngram, suffix or draft");
ABSL_FLAG(int32_t, max_sessions, foretoken::proposer::SessionLimits().max_sessions,
          "sessions over all streams; further ones are refused");
ABSL_FLAG(int64_t, max_context_tokens, foretoken::proposer::SessionLimits().max_context_tokens,
          "tokens per session; longer ones are refused");
ABSL_FLAG(int32_t, max_tree_nodes, foretoken::proposer::SessionLimits().max_tree_nodes,
          "nodes per tree; larger budgets are cut");
ABSL_FLAG(int32_t, ngram_min_length, foretoken::proposer::NgramOptions().min_length,
          "tokens of the shortest match that predicts");
ABSL_FLAG(int32_t, ngram_max_length, foretoken::proposer::NgramOptions().max_length,
          "tokens of the longest indexed n-gram");
ABSL_FLAG(int32_t, suffix_max_depth, foretoken::proposer::SuffixOptions().max_depth, "tokens of the longest match");
ABSL_FLAG(float, suffix_depth_per_match, foretoken::proposer::SuffixOptions().depth_per_match,
          "tokens that a tree is deep per token that its match is long");
ABSL_FLAG(float, suffix_min_path_chance, foretoken::proposer::SuffixOptions().min_path_chance,
          "nodes that are reached more rarely are left out");
ABSL_FLAG(int64_t, suffix_shared_tokens, foretoken::proposer::SuffixOptions().shared_tokens,
          "tokens of finished outputs remembered, over all tenants; 20 to 50 bytes each");
ABSL_FLAG(std::string, suffix_snapshot, foretoken::proposer::SuffixOptions().snapshot_path,
          "file where finished outputs survive a restart; empty: nowhere");
ABSL_FLAG(absl::Duration, suffix_snapshot_interval, foretoken::proposer::SuffixOptions().snapshot_interval,
          "how often that file is written, beside at the end");
ABSL_FLAG(std::string, model, "", "draft: directory of a Hugging Face checkpoint with the target's vocabulary");
ABSL_FLAG(std::string, device, foretoken::proposer::DraftOptions().device, "draft: what computes: cpu");
ABSL_FLAG(std::string, isa, foretoken::proposer::DraftOptions().cpu_isa,
          "draft: auto, or one of amx, avx512_bf16, avx512, avx2, baseline");
ABSL_FLAG(int32_t, threads, foretoken::proposer::DraftOptions().num_threads,
          "draft: threads of the CPU backend; 0: one per core");
ABSL_FLAG(std::optional<int64_t>, kv_cache_mb, std::nullopt,
          "draft: MiB for the K/V cache; unset: 8 full contexts, at most 4096");
ABSL_FLAG(int32_t, draft_children, foretoken::proposer::GardenOptions().num_children, "children of an expanded node");
ABSL_FLAG(int32_t, draft_tree_rows, foretoken::proposer::GardenOptions().max_tree_rows,
          "nodes expanded in a forward pass, over all sessions");
ABSL_FLAG(int32_t, draft_context_rows, foretoken::proposer::GardenOptions().max_context_rows,
          "context tokens computed in a forward pass, over all sessions");
ABSL_FLAG(int32_t, draft_grown_nodes, foretoken::proposer::GardenOptions().max_grown_nodes,
          "nodes that a session's tree may have expanded");
ABSL_FLAG(float, draft_min_path_chance, foretoken::proposer::GardenOptions().min_path_chance,
          "nodes less likely than this are not expanded");

namespace foretoken::proposer {
namespace {

Config ConfigFromFlags() {
  return {.method = absl::GetFlag(FLAGS_method),
          .limits = {.max_sessions = absl::GetFlag(FLAGS_max_sessions),
                     .max_context_tokens = absl::GetFlag(FLAGS_max_context_tokens),
                     .max_tree_nodes = absl::GetFlag(FLAGS_max_tree_nodes)},
          .ngram = {.min_length = absl::GetFlag(FLAGS_ngram_min_length),
                    .max_length = absl::GetFlag(FLAGS_ngram_max_length)},
          .suffix = {.max_depth = absl::GetFlag(FLAGS_suffix_max_depth),
                     .depth_per_match = absl::GetFlag(FLAGS_suffix_depth_per_match),
                     .min_path_chance = absl::GetFlag(FLAGS_suffix_min_path_chance),
                     .shared_tokens = absl::GetFlag(FLAGS_suffix_shared_tokens),
                     .snapshot_path = absl::GetFlag(FLAGS_suffix_snapshot),
                     .snapshot_interval = absl::GetFlag(FLAGS_suffix_snapshot_interval)},
          .draft = {.model_directory = absl::GetFlag(FLAGS_model),
                    .device = absl::GetFlag(FLAGS_device),
                    .cpu_isa = absl::GetFlag(FLAGS_isa),
                    .num_threads = absl::GetFlag(FLAGS_threads),
                    .kv_cache_mb = absl::GetFlag(FLAGS_kv_cache_mb),
                    .garden = {.num_children = absl::GetFlag(FLAGS_draft_children),
                               .max_tree_rows = absl::GetFlag(FLAGS_draft_tree_rows),
                               .max_context_rows = absl::GetFlag(FLAGS_draft_context_rows),
                               .max_grown_nodes = absl::GetFlag(FLAGS_draft_grown_nodes),
                               .min_path_chance = absl::GetFlag(FLAGS_draft_min_path_chance)}}};
}

absl::Status Run() {
  FT_RETURN_IF_ERROR(telemetry::InitLogging(absl::GetFlag(FLAGS_log_level)));
  telemetry::Metrics metrics;
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<ProposalService> service,
                      ProposalService::Create(ConfigFromFlags(), metrics));
  std::unique_ptr<telemetry::MetricsServer> metrics_server;
  if (const std::string address = absl::GetFlag(FLAGS_metrics_listen); !address.empty()) {
    FT_ASSIGN_OR_RETURN(metrics_server, telemetry::MetricsServer::Start(address, metrics));
    spdlog::info("metrics on port {}", metrics_server->port());
  }
  const std::string listen = absl::GetFlag(FLAGS_listen);
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                      rpc::Server::Start({.listen_address = listen,
                                          .service_names = {v1::ProposalService::service_full_name()},
                                          .drain_grace = absl::GetFlag(FLAGS_drain_grace)},
                                         {service.get()}));
  server->SetServing(true);
  spdlog::info("proposing by {}", absl::GetFlag(FLAGS_method));
  std::printf("listening on %s:%d\n", listen.substr(0, listen.rfind(':')).c_str(), server->port());
  std::fflush(stdout);
  server->ServeUntilSignal([&] { service->StopAdmitting(); });
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken::proposer

int main(int argc, char** argv) {
  foretoken::rpc::BlockTerminationSignals();
  // Distributions ship Abseil with its deadlock detector on: a global graph behind every lock, gRPC's included.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  absl::SetProgramUsageMessage(
      "Serves token trees, guessed from what sequences repeat or by a draft model, to verifiers.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = foretoken::proposer::Run();
  if (!status.ok()) {
    std::fprintf(stderr, "foretoken_proposer: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
