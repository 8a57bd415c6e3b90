// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/verifier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "verifier_service/engine_metrics.h"
#include "verifier_service/expert_metrics.h"

namespace foretoken::verifier {
namespace {

// After the grace clients get kLastWrites to read the last messages, and remaining calls get kLastCalls. A drain lasts
// no longer than the grace and both times together.
constexpr absl::Duration kLastWrites = absl::Seconds(3);
constexpr absl::Duration kLastCalls = absl::Seconds(1);

// The bounds of the period of the check for a stalled engine.
constexpr absl::Duration kMinStallPeriod = absl::Milliseconds(1);
constexpr absl::Duration kMaxStallPeriod = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> Verifier::Start(const Config& config, VerifierEnvironment environment) {
  FT_RETURN_IF_ERROR(Validate(config));
  std::unique_ptr<Verifier> verifier(new Verifier(config));
  if (!config.token_file.empty()) {
    FT_ASSIGN_OR_RETURN(verifier->client_tokens_, ClientTokens::Load(config.token_file));
    verifier->tokens_watch_ = std::make_unique<base::PeriodicTask>(
        ClientTokens::kLookPeriod, [tokens = verifier->client_tokens_.get()] { tokens->Look(); });
  }
  FT_RETURN_IF_ERROR(rpc::Server::Try({.listen_address = config.listen_address, .security = config.security}));
  FT_ASSIGN_OR_RETURN(const auto proposer_credentials, rpc::ChannelCredentials(config.proposer_tls));
  if (!config.metrics_address.empty()) {
    FT_ASSIGN_OR_RETURN(verifier->metrics_server_,
                        telemetry::MetricsServer::Start(config.metrics_address, *environment.metrics));
    spdlog::info("metrics on port {}", verifier->metrics_server_->port());
  }
  FT_ASSIGN_OR_RETURN(verifier->model_, LoadModel(config, environment.progress));
  if (const std::string& tuning = verifier->model_->transformer->product_tuning(); !tuning.empty()) {
    spdlog::info("{}", tuning);
  }
  FT_RETURN_IF_ERROR(verifier->StartEngine(environment, proposer_credentials));
  FT_RETURN_IF_ERROR(verifier->StartServing(environment));
  return verifier;
}

Verifier::~Verifier() {
  metrics_server_.reset();  // first, because a scrape reads the engine's counters
  stall_watch_.reset();
  failure_guard_.reset();
  if (calls_ != nullptr) calls_->ShutDownAll();
}

absl::Status Verifier::StartEngine(VerifierEnvironment& environment,
                                   std::shared_ptr<grpc::ChannelCredentials> proposer_credentials) {
  FT_ASSIGN_OR_RETURN(pool_,
                      ProposerPool::Create(std::move(environment.proposers),
                                           {.num_tokens = model_->num_tokens(),
                                            .vocabulary_fingerprint = model_->vocabulary_fingerprint,
                                            .token_digests = tokenizer::TokenDigests(model_->tokenizer.vocabulary()),
                                            // A tree larger than any request's limit is a bad tree.
                                            .max_tree_nodes = config_.engine.max_tree_nodes,
                                            .credentials = std::move(proposer_credentials),
                                            .target = rpc::TargetShape{.hidden_size = model_->config.hidden_size,
                                                                       .num_layers = model_->config.num_layers},
                                            .projection_directory = config_.projection_directory}));
  engine_ = std::make_unique<Engine>(
      config_.engine,
      EngineParts{.transformer = model_->transformer.get(),
                  .kv = &model_->kv,
                  .tokenizer = &model_->tokenizer,
                  .proposers = pool_.get(),
                  .end_token_ids = model_->end_token_ids,
                  .publish = [this](std::vector<SampleOutput> outputs) { publisher_.Publish(std::move(outputs)); },
                  .learned =
                      [times = model_->times](const LearningPasses& passes) {
                        spdlog::info("model loaded: {}; {} learning passes {:.2f} s", model::Describe(times),
                                     passes.num_passes, passes.seconds);
                      }});
  engine_->Start();
  return absl::OkStatus();
}

ServedModel Verifier::DescribeModel() const {
  return {.name = ServedName(config_),
          .architecture = model::ClassName(model_->config.architecture),
          .num_parameters = model::CountParameters(model_->config),
          .tokenizer = &model_->tokenizer,
          .chat_template = model_->chat_template ? &*model_->chat_template : nullptr,
          .chat_template_error = model_->chat_template_error,
          .vocabulary_size = model_->num_tokens(),
          .max_context_tokens = engine_->max_context_tokens(),
          .end_token_ids = model_->end_token_ids,
          .vocabulary_fingerprint = model_->vocabulary_fingerprint,
          .numerics_fingerprint = model_->numerics_fingerprint,
          .weight_formats = model_->weight_use.formats,
          .numeric_mode = model_->transformer->backend().Describe(),
          .bits_per_weight = model_->weight_use.bits_per_weight,
          .bytes_per_step = model_->weight_use.bytes_per_step,
          .read_bytes_per_second = model_->read_bytes_per_second,
          .default_sampling = model_->default_sampling,
          .proposers = pool_->Names(),
          .max_tree_nodes = config_.engine.max_tree_nodes,
          .max_prompt_bytes = static_cast<size_t>(config_.max_prompt_bytes),
          .allows_step_reports = config_.allow_step_reports,
          .allows_always_speculation = config_.allow_always_speculation};
}

void Verifier::AddCollectedMetrics() {
  using Families = telemetry::MetricsServer::Families;
  metrics_server_->Add([this](const Families&) { return CollectEngineMetrics(*engine_, *pool_, calls_->unread()); });
  if (model_->config.experts.num_experts > 0) {
    metrics_server_->Add([this](const Families&) { return CollectExpertMetrics(model_->transformer->expert_use()); });
  }
  if (config_.metrics_compat == "vllm") {
    const CacheConfig cache{.num_blocks = engine_->GetStats().num_blocks,
                            .block_size = kernels::kKvBlockSize,
                            .has_prefix_cache = config_.engine.enable_prefix_cache};
    metrics_server_->Add(
        [model = DescribeModel().name, cache](const Families& own) { return ToVllm(own, model, cache); });
  }
}

void Verifier::MakeServices(VerifierEnvironment& environment) {
  call_metrics_ = std::make_unique<CallMetrics>(*environment.metrics);
  grammars_ = std::make_unique<GrammarCompiler>(
      config_.grammars, TokensOf(model_->tokenizer.vocabulary(), model_->num_tokens(), model_->end_token_ids));
  is_stalled_ = &environment.metrics->AddGauge("foretoken_engine_stalled",
                                               "Whether a step takes longer than --engine_stall_timeout: 1 or 0.");
  calls_ = std::make_unique<GenerateCalls>(GenerateCallsParts{
      .model = DescribeModel(),
      .engine = {
          .reserve = [this](const RequestArrival& arrival) -> absl::StatusOr<QueuePlace> {
            if (is_stalled_->Value() != 0) return EngineStalled();
            return engine_->Reserve(arrival);
          },
          .submit = [this](QueuePlace place,
                           GenerationRequest request) { return engine_->Submit(std::move(place), std::move(request)); },
          .abort = [this](Ticket ticket) { engine_->Abort(ticket); }},
      .publisher = &publisher_,
      .metrics = call_metrics_.get(),
      .draw_bits = std::move(environment.draw_bits),
      .tokens = client_tokens_.get(),
      .tracer = std::move(environment.tracer),
      .traces_steps = config_.trace_steps,
      .grammars = grammars_.get(),
      .max_compilations = config_.max_compilations,
      .unread = config_.unread,
      .max_connection_age = config_.max_connection_age});
  service_ = std::make_unique<GenerationService>(GenerationServiceParts{
      .calls = calls_.get(), .max_lookups = config_.max_lookups, .proposers = [this] { return pool_->GetStatus(); }});
  if (config_.vllm_engine) MakeVllmService();
}

void Verifier::MakeVllmService() {
  absl::StatusOr<TokenizerArchive> archive = MakeTokenizerArchive(config_.model_directory);
  if (!archive.ok()) {
    spdlog::warn("gateways cannot get the tokenizer: {}", std::string(archive.status().message()));
    // Clients do not learn the server's paths.
    archive = absl::UnimplementedError("the server could not archive the tokenizer's files; its log says why");
  }
  const std::vector<int64_t>& bos_token_ids = model_->config.bos_token_ids;
  vllm_service_ = std::make_unique<VllmEngineService>(
      VllmEngineServiceParts{.calls = calls_.get(),
                             .model_type = model::ModelTypeName(model_->config.architecture),
                             .bos_token_id = bos_token_ids.empty() ? 0 : static_cast<int32_t>(bos_token_ids.front()),
                             .stats = [this] { return engine_->GetStats(); },
                             .is_healthy = [this] { return !refuses_calls_ && is_stalled_->Value() == 0; },
                             .max_running_samples = config_.engine.max_running_samples,
                             .tokenizer = std::move(archive)});
}

absl::Status Verifier::StartServing(VerifierEnvironment& environment) {
  MakeServices(environment);
  if (metrics_server_ != nullptr) AddCollectedMetrics();
  std::vector<grpc::Service*> services = {service_.get()};
  std::vector<std::string> names = {v1::GenerationService::service_full_name()};
  if (vllm_service_ != nullptr) {
    services.push_back(vllm_service_.get());
    names.push_back(engine_api::VllmEngine::service_full_name());
  }
  FT_ASSIGN_OR_RETURN(server_, rpc::Server::Start({.listen_address = config_.listen_address,
                                                   .security = config_.security,
                                                   .service_names = std::move(names),
                                                   .max_receive_bytes = static_cast<int>(config_.max_receive_bytes),
                                                   .max_connection_age = config_.max_connection_age,
                                                   .drain_grace = kLastCalls},
                                                  services));
  failure_guard_ = std::make_unique<DeviceFailureGuard>(*calls_, [this] {
    refuses_calls_ = true;
    server_->SetServing(false);
    engine_->Drain();
  });
  server_->SetServing(true);
  stall_watch_ = std::make_unique<base::PeriodicTask>(
      std::clamp(config_.engine_stall_timeout / 4, kMinStallPeriod, kMaxStallPeriod), [this] { LookAfterEngine(); });
  return absl::OkStatus();
}

absl::Status Verifier::EngineStalled() const {
  return base::WithReason(
      absl::UnavailableError(absl::StrCat("a step has taken more than ",
                                          absl::FormatDuration(config_.engine_stall_timeout), ": try another server")),
      "ENGINE_STALLED");
}

void Verifier::LookAfterEngine() {
  const EngineState state = stall_detector_.Look(engine_->pulse(), StallDetector::Clock::now());
  if (state == std::exchange(engine_state_, state)) return;
  is_stalled_->Set(state == EngineState::kSteps ? 0 : 1);
  server_->SetServing(state == EngineState::kSteps);
  switch (state) {
    case EngineState::kSteps:
      return spdlog::warn("the engine steps again: serving");
    case EngineState::kStalled:
      return spdlog::error("a step of the engine has taken {} and has not ended: not serving",
                           absl::FormatDuration(config_.engine_stall_timeout));
    case EngineState::kHangs:
      spdlog::error("the step has taken twice as long: ending all requests");
      calls_->EndAll(EngineStalled());
  }
}

void Verifier::FinishCalls() {
  refuses_calls_ = true;
  calls_->BeginDraining();
  engine_->Drain();
  spdlog::info("running requests get {} to end", absl::FormatDuration(config_.drain_grace));
  if (calls_->WaitUntilIdle(config_.drain_grace)) return;
  spdlog::warn("requests are still running after {}: ending them", absl::FormatDuration(config_.drain_grace));
  calls_->ShutDownAll();
  calls_->WaitUntilIdle(kLastWrites);  // clients read the last messages before the connections close
}

void Verifier::ServeUntilSignal() {
  server_->ServeUntilSignal([this] { FinishCalls(); });
}

void Verifier::Drain() {
  server_->Drain([this] { FinishCalls(); });
}

}  // namespace foretoken::verifier
