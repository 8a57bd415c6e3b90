// SPDX-License-Identifier: Apache-2.0
// foretoken_verifier: serves a model's text, decoded speculatively, until SIGTERM or SIGINT. When it is ready it prints
// one line, "listening on HOST:PORT", to standard output. Only this file of the service includes files of a proposer,
// because it runs embedded proposers.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/base/host_port.h"
#include "common/base/standard_streams.h"
#include "common/base/status_macros.h"
#include "common/base/system_random.h"
#include "common/base/termination_signals.h"
#include "common/flags/command_line.h"
#include "common/model/config/bounds.h"
#include "common/rpc/library_log.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/server_flags.h"
#include "common/telemetry/logging.h"
#include "common/telemetry/metrics.h"
#include "common/tracing/process_tracing.h"
#include "proposer_service/options.h"
#include "proposer_service/proposal_service.h"
#include "spdlog/spdlog.h"
#include "verifier_service/grammar/compile_process.h"
#include "verifier_service/verifier.h"

ABSL_FLAG(std::string, model, "", "directory of a Hugging Face checkpoint, or a GGUF file");
ABSL_FLAG(std::string, model_name, "", "the model's name in requests; empty: the name of the directory or file");
ABSL_FLAG(std::string, listen, foretoken::verifier::Config().listen_address,
          "HOST:PORT to serve on; port 0 takes a free one");
ABSL_FLAG(std::string, metrics_listen, "", "HOST:PORT of GET /metrics; empty: none");
ABSL_FLAG(std::string, log_level, foretoken::verifier::Config().log_level, "trace, debug, info, warning, error or off");
ABSL_FLAG(std::string, log_format, foretoken::verifier::Config().log_format, "text or json: the form of a log line");
ABSL_FLAG(std::string, device, foretoken::verifier::Config().device,
          "the device that computes: cpu, or cuda if the build has it");
ABSL_FLAG(std::string, cpu_isa, foretoken::verifier::Config().cpu_isa,
          "auto, or one of amx, avx512_bf16, avx512_vnni, avx512, avx_vnni, avx2, baseline");
ABSL_FLAG(std::string, weight_quantization, foretoken::verifier::Config().quantization.weights,
          "of the layers' weights: none (bf16, or as quantised in the file), int8 or int4, on cuda also fp8; fewer "
          "bytes, other logits");
ABSL_FLAG(std::string, head_quantization, foretoken::verifier::Config().quantization.head,
          "of the embedding and the head: none (bf16, or as quantised in the file), int8 or int4");
ABSL_FLAG(int32_t, weight_group_size, foretoken::verifier::Config().quantization.group_size,
          "inputs that share a scale, for int8 and int4: 32, 64 or 128");
ABSL_FLAG(std::string, activation_quantization, foretoken::verifier::Config().quantization.activations,
          "none (bf16), or on cpu int8, for what int8 and int4 weights multiply: faster, other logits");
ABSL_FLAG(std::string, kv_cache_dtype, foretoken::verifier::Config().quantization.kv_cache,
          "of K and V: bf16, int8 or fp8 (e4m3), in 8 bits with a scale for each token and head: half the bytes, other "
          "logits");
ABSL_FLAG(std::string, numerics_fingerprint, "",
          "start only if the numerics fingerprint, as `foretoken info` shows it, is this one; unset: any");
ABSL_FLAG(int32_t, threads, 0,
          "threads of the CPU backend; 0: one per core, but no more than the quota of a container");
ABSL_FLAG(int32_t, tensor_parallel, 1, "ranks that share every layer of the model, and the threads or GPUs");
ABSL_FLAG(std::optional<int64_t>, kv_cache_mb, std::nullopt,
          "MiB for the K/V cache; unset: 8 full contexts, at most 4096");
ABSL_FLAG(std::optional<int64_t>, expert_memory_mb, std::nullopt,
          "MiB for the packed experts of a model with experts, over all ranks; the others are read from its files when "
          "tokens choose them; unset: all experts are kept");
ABSL_FLAG(std::optional<int32_t>, max_context_tokens, std::nullopt,
          "tokens of prompt and output together; unset: the model's own limit, or what --kv_cache_mb holds");
ABSL_FLAG(std::string, proposer, "",
          "proposers, separated by ';', each METHOD=TARGET[,TARGET...] with targets dns:///NAME:PORT or "
          "static:HOST:PORT, or METHOD,embedded[,KEY=VALUE...] with foretoken_proposer's options");
ABSL_FLAG(int32_t, max_queued_requests, foretoken::verifier::EngineConfig().max_queued_requests,
          "requests that may wait; further ones are refused");
ABSL_FLAG(int32_t, max_queued_samples, foretoken::verifier::EngineConfig().max_queued_samples,
          "samples of requests that may wait; further ones are refused");
ABSL_FLAG(int64_t, max_queued_tokens, foretoken::verifier::EngineConfig().max_queued_tokens,
          "tokens that waiting requests may hold in prompts, predictions and lists; further ones are refused");
ABSL_FLAG(
    std::string, tenant_weights, "",
    "weights of tenants that want more than there is: NAME=WEIGHT, separated by ';', or a file with one per line; "
    "other tenants weigh 1");
ABSL_FLAG(std::optional<int32_t>, max_tenant_running_samples, std::nullopt,
          "samples of one tenant that run together; unset: --max_running_samples");
ABSL_FLAG(std::optional<int64_t>, max_tenant_queued_tokens, std::nullopt,
          "tokens that waiting requests of one tenant may hold; unset: --max_queued_tokens");
ABSL_FLAG(absl::Duration, priority_aging, foretoken::verifier::EngineConfig().priority_aging,
          "a wait of this length counts as one level of priority");
ABSL_FLAG(int32_t, max_running_samples, foretoken::verifier::EngineConfig().max_running_samples,
          "samples computed together");
ABSL_FLAG(int32_t, max_step_rows, foretoken::verifier::EngineConfig().max_step_rows,
          "tokens in one forward pass: of samples, token trees and prompts; at least --max_running_samples");
ABSL_FLAG(int32_t, max_tree_nodes, foretoken::verifier::EngineConfig().max_tree_nodes,
          "nodes of a token tree per sample and step");
ABSL_FLAG(float, max_inter_token_growth, foretoken::verifier::PromptLimits().max_inter_token_growth,
          "how many times longer a step may take because of prompts while other requests stream; if more prompts wait "
          "than requests stream, the added time is multiplied by the number of prompts per stream");
ABSL_FLAG(
    absl::Duration, burst_window, foretoken::verifier::PromptLimits().burst_window,
    "prompts that begin to run up to this long after a stream's first token belong to one burst with it: they may "
    "make its steps longer without a bound, so that the whole burst soon streams");
ABSL_FLAG(int32_t, max_burst_prompt_tokens, foretoken::verifier::PromptLimits().max_burst_prompt_tokens,
          "a prompt with more tokens than this to compute belongs to no burst");
ABSL_FLAG(absl::Duration, max_grammar_time, foretoken::verifier::CompileLimits().max_time,
          "processor time to compile one response format; one that takes more is refused");
ABSL_FLAG(int64_t, max_grammar_memory_mb, foretoken::verifier::CompileLimits().max_memory_bytes >> 20,
          "MiB to compile one response format; one that takes more is refused");
ABSL_FLAG(int64_t, grammar_cache_mb, foretoken::verifier::GrammarCompilerOptions().max_cache_bytes >> 20,
          "MiB of compiled response formats to keep");
ABSL_FLAG(
    int64_t, max_held_grammars_mb, foretoken::verifier::GrammarCompilerOptions().max_held_bytes >> 20,
    "MiB of compiled response formats that requests hold beyond those kept, half of them of one tenant; a request that "
    "needs a further one is refused");
ABSL_FLAG(int32_t, max_compilations, foretoken::verifier::Config().max_compilations,
          "requests that may wait for their response formats to be compiled; further ones are refused");
ABSL_FLAG(absl::Duration, max_grammar_mask_time, foretoken::verifier::EngineConfig().max_mask_time,
          "mean time in which a response format must say which tokens may come next; a slower request is ended");
ABSL_FLAG(bool, prefix_cache, foretoken::verifier::EngineConfig().enable_prefix_cache,
          "whether prompts with a common beginning share its K/V");
ABSL_FLAG(bool, vllm_engine, foretoken::verifier::Config().vllm_engine,
          "whether the server also answers vllm.grpc.engine.VllmEngine, by which gateways call engines");
ABSL_FLAG(int32_t, max_lookups, foretoken::verifier::Config().max_lookups,
          "Tokenize and Detokenize calls that may wait or run; further ones are refused");
ABSL_FLAG(int64_t, max_prompt_bytes, foretoken::verifier::Config().max_prompt_bytes,
          "bytes of a prompt's text; at most --max_receive_bytes");
ABSL_FLAG(int64_t, max_receive_bytes, foretoken::verifier::Config().max_receive_bytes, "bytes of one request");
ABSL_FLAG(
    bool, allow_step_reports, foretoken::verifier::Config().allow_step_reports,
    "whether requests may ask for step reports, as `foretoken explain` does; they show guesses, which may be parts "
    "of other outputs of the same tenant");
ABSL_FLAG(
    std::string, token_file, "",
    "file with the bearer tokens of clients, one per line; it is read again when it changes; unset: clients need none");
ABSL_FLAG(std::string, proposer_tls_ca, "",
          "PEM file of the authorities of proposers' certificates; it turns on TLS to proposers");
ABSL_FLAG(std::string, proposer_tls_certificate, "", "PEM file of the certificate that proposers ask the verifier for");
ABSL_FLAG(std::string, proposer_tls_key, "", "PEM file of that certificate's key");
ABSL_FLAG(std::vector<std::string>, proposer_tls_identities, {},
          "URI or DNS names, as in their certificates, of the only proposers to connect to; unset: a proposer's "
          "certificate must have the name of its address");
ABSL_FLAG(
    std::string, projection_directory, "",
    "directory in which drafters leave their projections, by the same flag; empty: the verifier reads them from the "
    "proposers, as it does with those that are not there");
ABSL_FLAG(std::string, metrics_compat, foretoken::verifier::Config().metrics_compat,
          "vllm: show the metrics under vLLM's names too, for dashboards that were made for it");
ABSL_FLAG(
    bool, trace_steps, foretoken::verifier::Config().trace_steps,
    "whether a recorded trace has a span for every step and every proposal; OTEL_* variables say where traces go");
ABSL_FLAG(bool, allow_always_speculation, foretoken::verifier::Config().allow_always_speculation,
          "whether requests may ask for SPECULATION_MODE_ALWAYS, which slows the requests beside them");
ABSL_FLAG(
    int64_t, max_unread_bytes, foretoken::verifier::Config().unread.max_bytes,
    "bytes of output that clients have not read yet, over all calls; beyond it the call with the most bytes ends");
ABSL_FLAG(absl::Duration, max_write_time, foretoken::verifier::Config().unread.max_write_time,
          "how long a client may take to read a message before its call ends");
ABSL_FLAG(absl::Duration, engine_stall_timeout, foretoken::verifier::Config().engine_stall_timeout,
          "health says NOT_SERVING while one step of the engine takes longer than this; choose more than the longest "
          "step");
ABSL_FLAG(absl::Duration, drain_grace, foretoken::verifier::Config().drain_grace,
          "how long running requests may take to end after SIGTERM");
ABSL_FLAG(std::optional<absl::Duration>, max_connection_age, foretoken::verifier::Config().max_connection_age,
          "age, give or take a tenth, at which a client is asked to connect anew, which spreads clients over verifiers "
          "behind one name; running calls end on the old connection. Unset: none");

namespace foretoken::verifier {
namespace {

static_assert(model::kMaxVocabulary <= rpc::kMaxTokenIds, "proposers take the ids of every vocabulary");

// Validate names a flag that is out of bounds. A value that has no 63 bits in bytes becomes the largest that has them.
int64_t BytesOf(int64_t mebibytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() >> 20;
  return std::clamp(mebibytes, -kMost, kMost) * (int64_t{1} << 20);
}

Config ConfigFromFlags() {
  return {.model_directory = absl::GetFlag(FLAGS_model),
          .model_name = absl::GetFlag(FLAGS_model_name),
          .listen_address = absl::GetFlag(FLAGS_listen),
          .security = rpc::ServerSecurityFromFlags(),
          .token_file = absl::GetFlag(FLAGS_token_file),
          .proposer_tls = {.certificate = absl::GetFlag(FLAGS_proposer_tls_certificate),
                           .key = absl::GetFlag(FLAGS_proposer_tls_key),
                           .ca = absl::GetFlag(FLAGS_proposer_tls_ca),
                           .identities = absl::GetFlag(FLAGS_proposer_tls_identities),
                           .refresh = rpc::ServerSecurityFromFlags().tls.refresh},
          .projection_directory = absl::GetFlag(FLAGS_projection_directory),
          .metrics_address = absl::GetFlag(FLAGS_metrics_listen),
          .metrics_compat = absl::GetFlag(FLAGS_metrics_compat),
          .log_format = absl::GetFlag(FLAGS_log_format),
          .log_level = absl::GetFlag(FLAGS_log_level),
          .device = absl::GetFlag(FLAGS_device),
          .cpu_isa = absl::GetFlag(FLAGS_cpu_isa),
          .quantization = {.weights = absl::GetFlag(FLAGS_weight_quantization),
                           .head = absl::GetFlag(FLAGS_head_quantization),
                           .group_size = absl::GetFlag(FLAGS_weight_group_size),
                           .activations = absl::GetFlag(FLAGS_activation_quantization),
                           .kv_cache = absl::GetFlag(FLAGS_kv_cache_dtype)},
          .numerics_fingerprint = absl::GetFlag(FLAGS_numerics_fingerprint),
          .num_threads = absl::GetFlag(FLAGS_threads),
          .tensor_parallel = absl::GetFlag(FLAGS_tensor_parallel),
          .kv_cache_mb = absl::GetFlag(FLAGS_kv_cache_mb),
          .expert_memory_mb = absl::GetFlag(FLAGS_expert_memory_mb),
          .max_context_tokens = absl::GetFlag(FLAGS_max_context_tokens),
          .engine = {.max_queued_requests = absl::GetFlag(FLAGS_max_queued_requests),
                     .max_queued_samples = absl::GetFlag(FLAGS_max_queued_samples),
                     .max_queued_tokens = absl::GetFlag(FLAGS_max_queued_tokens),
                     .priority_aging = absl::GetFlag(FLAGS_priority_aging),
                     .max_running_samples = absl::GetFlag(FLAGS_max_running_samples),
                     .max_step_rows = absl::GetFlag(FLAGS_max_step_rows),
                     .max_tree_nodes = absl::GetFlag(FLAGS_max_tree_nodes),
                     .prompts = {.max_inter_token_growth = absl::GetFlag(FLAGS_max_inter_token_growth),
                                 .max_burst_prompt_tokens = absl::GetFlag(FLAGS_max_burst_prompt_tokens),
                                 .burst_window = absl::GetFlag(FLAGS_burst_window)},
                     .enable_prefix_cache = absl::GetFlag(FLAGS_prefix_cache),
                     .max_mask_time = absl::GetFlag(FLAGS_max_grammar_mask_time),
                     .tenants = {.max_running_samples = absl::GetFlag(FLAGS_max_tenant_running_samples),
                                 .max_queued_tokens = absl::GetFlag(FLAGS_max_tenant_queued_tokens)}},
          .grammars = {.limits = {.max_time = absl::GetFlag(FLAGS_max_grammar_time),
                                  .max_memory_bytes = BytesOf(absl::GetFlag(FLAGS_max_grammar_memory_mb))},
                       .max_cache_bytes = BytesOf(absl::GetFlag(FLAGS_grammar_cache_mb)),
                       .max_held_bytes = BytesOf(absl::GetFlag(FLAGS_max_held_grammars_mb))},
          .max_compilations = absl::GetFlag(FLAGS_max_compilations),
          .proposers = absl::StrSplit(absl::GetFlag(FLAGS_proposer), ';', absl::SkipEmpty()),
          .allow_step_reports = absl::GetFlag(FLAGS_allow_step_reports),
          .trace_steps = absl::GetFlag(FLAGS_trace_steps),
          .allow_always_speculation = absl::GetFlag(FLAGS_allow_always_speculation),
          .vllm_engine = absl::GetFlag(FLAGS_vllm_engine),
          .max_lookups = absl::GetFlag(FLAGS_max_lookups),
          .max_prompt_bytes = absl::GetFlag(FLAGS_max_prompt_bytes),
          .max_receive_bytes = absl::GetFlag(FLAGS_max_receive_bytes),
          .unread = {.max_bytes = absl::GetFlag(FLAGS_max_unread_bytes),
                     .max_write_time = absl::GetFlag(FLAGS_max_write_time)},
          .engine_stall_timeout = absl::GetFlag(FLAGS_engine_stall_timeout),
          .drain_grace = absl::GetFlag(FLAGS_drain_grace),
          .max_connection_age = absl::GetFlag(FLAGS_max_connection_age)};
}

// Proposers inside this process. Each has a server that only its own channel can reach.
class EmbeddedProposers {
 public:
  EmbeddedProposers(telemetry::Metrics& metrics, proposer::TraceOptions trace)
      : metrics_(metrics), trace_(std::move(trace)) {}

  absl::Status Start(ProposerSpec& spec) {
    FT_ASSIGN_OR_RETURN(const proposer::Config config, proposer::ConfigFromOptions(spec.method, spec.options));
    FT_ASSIGN_OR_RETURN(std::unique_ptr<proposer::ProposalService> service,
                        proposer::ProposalService::Create(config, metrics_, trace_));
    FT_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Server> server,
                        rpc::Server::Start({.max_receive_bytes = rpc::kMaxProposeRequestBytes}, {service.get()}));
    server->SetServing(true);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(rpc::kMaxProposeResponseBytes);
    spec.channel = server->InProcessChannel(arguments);
    services_.push_back(std::move(service));
    servers_.push_back(std::move(server));
    return absl::OkStatus();
  }

 private:
  telemetry::Metrics& metrics_;
  const proposer::TraceOptions trace_;
  std::vector<std::unique_ptr<proposer::ProposalService>> services_;
  std::vector<std::unique_ptr<rpc::Server>> servers_;  // end before the services
};

// Shows the progress of loading a large model: on a terminal one growing line, otherwise a line of the log per tenth.
class ProgressLine {
 public:
  void Show(size_t num_bytes_done, size_t num_bytes) {
    if (num_bytes < kLargeBytes) return;
    const auto percent = static_cast<int>(num_bytes_done * 100 / num_bytes);
    const int shown = on_terminal_ ? percent : percent / 10 * 10;
    if (shown == last_shown_) return;
    last_shown_ = shown;
    const std::string line =
        absl::StrFormat("loading %.1f of %.1f GiB, %d %%", static_cast<double>(num_bytes_done) / kGiB,
                        static_cast<double>(num_bytes) / kGiB, percent);
    if (!on_terminal_) return spdlog::info("{}", line);
    std::fprintf(stderr, num_bytes_done == num_bytes ? "\r%s\n" : "\r%s", line.c_str());
  }

 private:
  static constexpr size_t kLargeBytes = size_t{256} << 20;
  static constexpr double kGiB = 1 << 30;
  const bool on_terminal_ = isatty(STDERR_FILENO) == 1;
  int last_shown_ = -1;
};

// Reads the file of weights, too. The model's directory may also be the only positional argument.
absl::StatusOr<Config> ConfigFromCommandLine(const std::vector<std::string>& arguments) {
  Config config = ConfigFromFlags();
  absl::StatusOr<TenantWeights> weights = TenantWeights::Load(absl::GetFlag(FLAGS_tenant_weights));
  if (!weights.ok()) return absl::InvalidArgumentError(absl::StrCat("--tenant_weights: ", weights.status().message()));
  config.engine.tenants.weights = *std::move(weights);
  if (arguments.empty()) return config;
  if (arguments.size() > 1 || !config.model_directory.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", arguments.back(),
                                                   "\": expected flags and one directory or GGUF file of a model"));
  }
  config.model_directory = arguments.front();
  return config;
}

std::vector<std::string> FlagsThatNeedAValue() {
  std::vector<std::string> names = rpc::ServerFlagsThatNeedAValue();
  names.insert(names.end(), {"token_file", "proposer_tls_ca", "proposer_tls_certificate", "proposer_tls_key",
                             "proposer_tls_identities", "numerics_fingerprint"});
  return names;
}

absl::Status Run(const std::vector<std::string>& arguments) {
  std::optional<base::EndOnSignal> loading(std::in_place);
  FT_ASSIGN_OR_RETURN(const Config config, ConfigFromCommandLine(arguments));
  FT_RETURN_IF_ERROR(telemetry::InitLogging(config.log_level, config.log_format));
  rpc::TakeLibraryLogs();
  FT_RETURN_IF_ERROR(Validate(config));
  telemetry::Metrics metrics;
  const std::unique_ptr<tracing::ProcessTracing> tracing =
      tracing::ProcessTracing::Start("foretoken-verifier", metrics);
  EmbeddedProposers embedded(metrics, {.tracer = tracing->tracer(), .traces_proposals = config.trace_steps});
  std::vector<ProposerSpec> specs;
  for (const std::string& text : config.proposers) {
    FT_ASSIGN_OR_RETURN(ProposerSpec spec, ParseProposerSpec(text));
    if (const absl::Status status = spec.is_embedded ? embedded.Start(spec) : absl::OkStatus(); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("proposer \"", text, "\": ", status.message()));
    }
    specs.push_back(std::move(spec));
  }
  ProgressLine progress;
  FT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Verifier> verifier,
      Verifier::Start(config, {.proposers = std::move(specs),
                               .metrics = &metrics,
                               .draw_bits = base::SystemRandomBits,
                               .tracer = tracing->tracer(),
                               .progress = [&progress](size_t done, size_t all) { progress.Show(done, all); }}));
  loading.reset();  // from here on a signal begins a drain
  std::printf("listening on %s:%d\n", std::string(base::HostOf(config.listen_address)).c_str(), verifier->port());
  std::fflush(stdout);
  verifier->ServeUntilSignal();
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken::verifier

int main(int argc, char** argv) {
  if (argc == 2 && absl::string_view(argv[1]) == foretoken::verifier::kServeGrammarsArgument) {
    std::_Exit(foretoken::verifier::ServeGrammars());  // it leaves nothing to destroy
  }
  foretoken::base::KeepStandardStreams();
  foretoken::base::BlockTerminationSignals();
  foretoken::telemetry::EndIfMemoryRunsOut();
  // Some distributions ship Abseil with its deadlock detector on. It updates a global graph for every lock, also
  // gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const std::vector<std::string> arguments = foretoken::flags::ParseCommandLine(
      {argv + 1, argv + argc},
      {.program = "foretoken_verifier",
       .summary = "serves a model's text over gRPC, decoded speculatively from proposers' token trees",
       .arguments = "[DIRECTORY OR GGUF FILE OF THE MODEL]",
       .flag_files = {"verifier_service/main.cc", "common/rpc/server_flags.cc"},
       .needs_value = foretoken::verifier::FlagsThatNeedAValue()});
  const absl::Status status = foretoken::verifier::Run(arguments);
  if (!status.ok()) {
    foretoken::telemetry::ReportLastError("foretoken_verifier", status);
    return 1;
  }
  return 0;
}
