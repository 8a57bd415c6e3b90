// SPDX-License-Identifier: Apache-2.0
// foretoken_proposer: serves token trees to verifiers until SIGTERM or SIGINT. Once ready it prints one line,
// "listening on HOST:PORT", to standard output.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/host_port.h"
#include "common/base/standard_streams.h"
#include "common/base/status_macros.h"
#include "common/base/termination_signals.h"
#include "common/flags/command_line.h"
#include "common/flags/listen_ports.h"
#include "common/rpc/library_log.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/server_flags.h"
#include "common/telemetry/logging.h"
#include "common/telemetry/metrics.h"
#include "common/telemetry/metrics_server.h"
#include "common/tracing/process_tracing.h"
#include "proposer_service/features/load_drafter.h"
#include "proposer_service/options.h"
#include "proposer_service/proposal_service.h"
#include "spdlog/spdlog.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50052", "HOST:PORT to serve on; port 0 takes a free one");
ABSL_FLAG(std::string, metrics_listen, "", "HOST:PORT of GET /metrics; empty: none");
ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warning, error or off");
ABSL_FLAG(std::string, log_format, "text", "text or json: the form of a log line");
ABSL_FLAG(bool, trace_proposals, false,
          "whether the trace of a session has a span for every tree; OTEL_* variables say where traces go");
ABSL_FLAG(absl::Duration, drain_grace, absl::Seconds(10),
          "how long calls that do not end by themselves, such as a watch of the health, may go on after SIGTERM; "
          "streams end at once");
ABSL_FLAG(std::string, method, foretoken::proposer::Config().method,
          "method of guessing: ngram, suffix, draft, dflash, eagle, eagle3, mlp_speculator or medusa");

#define FT_PROPOSER_OPTION(method, type, name, field, help) \
  ABSL_FLAG(type, name, foretoken::proposer::Config().field, help);
#include "proposer_service/option_list.inc"
#undef FT_PROPOSER_OPTION

namespace foretoken::proposer {
namespace {

// Shorter than the default: the sessions of a verifier whose host is lost take room until its connection ends.
constexpr absl::Duration kKeepaliveTime = absl::Seconds(10), kKeepaliveTimeout = absl::Seconds(5);

Config ConfigFromFlags() {
  Config config = {.method = absl::GetFlag(FLAGS_method)};
#define FT_PROPOSER_OPTION(method, type, name, field, help) config.field = absl::GetFlag(FLAGS_##name);
#include "proposer_service/option_list.inc"
#undef FT_PROPOSER_OPTION
  return config;
}

// The options that differ from their defaults.
std::vector<absl::string_view> ChangedOptions() {
  std::vector<absl::string_view> changed;
  const auto add_if_changed = [&](const absl::CommandLineFlag& flag) {
    if (flag.CurrentValue() != flag.DefaultValue()) changed.push_back(flag.Name());
  };
#define FT_PROPOSER_OPTION(method, type, name, field, help) add_if_changed(absl::GetFlagReflectionHandle(FLAGS_##name));
#include "proposer_service/option_list.inc"
#undef FT_PROPOSER_OPTION
  return changed;
}

bool HasModel(absl::string_view method) { return method == "draft" || ReadsFeatures(method); }

// The only argument may name the checkpoint of a draft model.
absl::StatusOr<Config> ConfigFromCommandLine(const std::vector<std::string>& arguments) {
  Config config = ConfigFromFlags();
  const absl::Duration drain_grace = absl::GetFlag(FLAGS_drain_grace);
  if (drain_grace < absl::ZeroDuration() || drain_grace > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--drain_grace: expected 0 to 24h, got ", absl::FormatDuration(drain_grace)));
  }
  if (!HasModel(config.method) && !config.draft.model_directory.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model: --method=", config.method, " reads no model: a draft model is --method=draft --model=DIRECTORY"));
  }
  FT_RETURN_IF_ERROR(CheckFlags(config.method, ChangedOptions()));
  if (arguments.empty()) return config;
  if (arguments.size() > 1 || !HasModel(config.method) || !config.draft.model_directory.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", arguments.back(),
                                                   "\": a draft model is --method=draft --model=DIRECTORY"));
  }
  config.draft.model_directory = arguments.front();
  return config;
}

absl::Status Run(const std::vector<std::string>& arguments) {
  std::optional<base::EndOnSignal> loading(std::in_place);
  FT_ASSIGN_OR_RETURN(const Config config, ConfigFromCommandLine(arguments));
  FT_RETURN_IF_ERROR(telemetry::InitLogging(absl::GetFlag(FLAGS_log_level), absl::GetFlag(FLAGS_log_format)));
  rpc::TakeLibraryLogs();
  telemetry::Metrics metrics;
  const std::unique_ptr<tracing::ProcessTracing> tracing =
      tracing::ProcessTracing::Start("foretoken-proposer", metrics);
  const std::string listen = absl::GetFlag(FLAGS_listen);
  FT_RETURN_IF_ERROR(flags::CheckPortsDiffer({{"listen", listen},
                                              {"health_listen", rpc::ServerSecurityFromFlags().health_address},
                                              {"metrics_listen", absl::GetFlag(FLAGS_metrics_listen)}}));
  const rpc::ServerOptions options = {.listen_address = listen,
                                      .security = rpc::ServerSecurityFromFlags(),
                                      .service_names = {v1::ProposalService::service_full_name()},
                                      .max_receive_bytes = rpc::kMaxProposeRequestBytes,
                                      .keepalive_time = kKeepaliveTime,
                                      .keepalive_timeout = kKeepaliveTimeout,
                                      .drain_grace = absl::GetFlag(FLAGS_drain_grace)};
  FT_RETURN_IF_ERROR(rpc::Server::Try(options));  // before a model is loaded
  std::unique_ptr<telemetry::MetricsServer> metrics_server;
  if (const std::string address = absl::GetFlag(FLAGS_metrics_listen); !address.empty()) {
    FT_ASSIGN_OR_RETURN(metrics_server, telemetry::MetricsServer::Start(address, metrics));
    spdlog::info("metrics on port {}", metrics_server->port());
  }
  FT_ASSIGN_OR_RETURN(
      const std::unique_ptr<ProposalService> service,
      ProposalService::Create(config, metrics,
                              {.tracer = tracing->tracer(), .traces_proposals = absl::GetFlag(FLAGS_trace_proposals)}));
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server, rpc::Server::Start(options, {service.get()}));
  loading.reset();  // from here on a signal begins a drain
  server->SetServing(true);
  spdlog::info("proposing by {}", absl::GetFlag(FLAGS_method));
  std::printf("listening on %s:%d\n", std::string(base::HostOf(listen)).c_str(), server->port());
  std::fflush(stdout);
  server->ServeUntilSignal([&] {
    spdlog::info("streams end; calls that do not end by themselves get {}",
                 absl::FormatDuration(absl::GetFlag(FLAGS_drain_grace)));
    service->StopAdmitting();
  });
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken::proposer

int main(int argc, char** argv) {
  foretoken::base::KeepStandardStreams();
  foretoken::base::BlockTerminationSignals();
  foretoken::telemetry::EndIfMemoryRunsOut();
  // Linux distributions build Abseil with its deadlock detector on. It takes a global lock around every lock, gRPC's
  // included.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const std::vector<std::string> arguments = foretoken::flags::ParseCommandLine(
      {argv + 1, argv + argc},
      {.program = "foretoken_proposer",
       .summary = "serves token trees to verifiers; it guesses them from repeating text or with a draft model",
       .arguments = "[DIRECTORY OR GGUF FILE OF A DRAFT MODEL]",
       .flag_files = {"proposer_service/main.cc", "proposer_service/option_list.inc", "common/rpc/server_flags.cc"},
       .needs_value = foretoken::rpc::ServerFlagsThatNeedAValue()});
  const absl::Status status = foretoken::proposer::Run(arguments);
  if (!status.ok()) {
    foretoken::telemetry::ReportLastError("foretoken_proposer", status);
    return 1;
  }
  return 0;
}
