// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/verifier.h"

#include <utility>

#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace foretoken::verifier {
namespace {

// For calls that have their last message and only have to end.
constexpr absl::Duration kLastWrites = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> Verifier::Start(const Config& config, VerifierEnvironment environment) {
  FT_RETURN_IF_ERROR(Validate(config));
  std::unique_ptr<Verifier> verifier(new Verifier(config));
  FT_ASSIGN_OR_RETURN(verifier->model_, LoadModel(config, environment.progress));
  if (const std::string& tuning = verifier->model_->transformer->product_tuning(); !tuning.empty()) {
    spdlog::info("{}", tuning);
  }
  FT_RETURN_IF_ERROR(verifier->StartEngine(environment));
  FT_RETURN_IF_ERROR(verifier->StartServing(environment));
  return verifier;
}

Verifier::~Verifier() {
  metrics_server_.reset();  // a scrape reads the engine's counters
  failure_guard_.reset();
  if (service_ != nullptr) service_->AbortAll();
}

absl::Status Verifier::StartEngine(VerifierEnvironment& environment) {
  FT_ASSIGN_OR_RETURN(pool_,
                      ProposerPool::Create(std::move(environment.proposers),
                                           {.num_tokens = static_cast<int32_t>(model_->config.vocab_size),
                                            .vocabulary_fingerprint = model_->vocabulary_fingerprint,
                                            .token_digests = tokenizer::TokenDigests(model_->tokenizer.vocabulary())}));
  engine_ = std::make_unique<Engine>(config_.engine, EngineParts{.transformer = model_->transformer.get(),
                                                                 .kv = &model_->kv,
                                                                 .tokenizer = &model_->tokenizer,
                                                                 .proposers = pool_.get(),
                                                                 .end_token_ids = model_->end_token_ids,
                                                                 .publish = [this](std::vector<SampleOutput> outputs) {
                                                                   publisher_.Publish(std::move(outputs));
                                                                 }});
  engine_->Start();
  return absl::OkStatus();
}

ServedModel Verifier::DescribeModel() const {
  return {.name = config_.model_name.empty() ? BaseName(config_.model_directory) : config_.model_name,
          .architecture = ArchitectureName(model_->config.architecture),
          .num_parameters = model::CountParameters(model_->config),
          .tokenizer = &model_->tokenizer,
          .vocabulary_size = static_cast<int32_t>(model_->tokenizer.vocabulary().num_ids()),
          .max_context_tokens = engine_->max_context_tokens(),
          .end_token_ids = model_->end_token_ids,
          .vocabulary_fingerprint = model_->vocabulary_fingerprint,
          .numerics_fingerprint = model_->numerics_fingerprint,
          .default_sampling = model_->default_sampling,
          .proposers = pool_->Names(),
          .max_tree_nodes = config_.engine.max_tree_nodes,
          .max_prompt_bytes = static_cast<size_t>(config_.max_prompt_bytes)};
}

absl::Status Verifier::StartServing(VerifierEnvironment& environment) {
  call_metrics_ = std::make_unique<CallMetrics>(*environment.metrics->registry());
  service_ = std::make_unique<GenerationService>(GenerationServiceParts{
      .model = DescribeModel(),
      .engine = {
          .reserve = [this] { return engine_->Reserve(); },
          .submit = [this](QueuePlace place,
                           GenerationRequest request) { return engine_->Submit(std::move(place), std::move(request)); },
          .abort_by_id = [this](const std::string& request_id) { return engine_->Abort(request_id); },
          .abort = [this](Ticket ticket) { engine_->Abort(ticket); }},
      .publisher = &publisher_,
      .metrics = call_metrics_.get(),
      .draw_bits = std::move(environment.draw_bits),
      .proposers = [this] { return pool_->GetStatus(); }});
  if (!config_.metrics_address.empty()) {
    FT_ASSIGN_OR_RETURN(metrics_server_,
                        telemetry::MetricsServer::Start(config_.metrics_address, *environment.metrics));
    collector_ = std::make_shared<EngineCollector>(*engine_, *pool_);
    metrics_server_->Add(collector_);
    spdlog::info("metrics on port {}", metrics_server_->port());
  }
  FT_ASSIGN_OR_RETURN(server_, rpc::Server::Start({.listen_address = config_.listen_address,
                                                   .service_names = {v1::GenerationService::service_full_name()},
                                                   .max_receive_bytes = static_cast<int>(config_.max_receive_bytes),
                                                   .drain_grace = kLastWrites},
                                                  {service_.get()}));
  failure_guard_ = std::make_unique<DeviceFailureGuard>(*service_, [this] {
    server_->SetServing(false);
    engine_->Drain();
  });
  server_->SetServing(true);
  return absl::OkStatus();
}

void Verifier::FinishCalls() {
  engine_->Drain();
  spdlog::info("running requests get {} to end", absl::FormatDuration(config_.drain_grace));
  if (service_->WaitUntilIdle(config_.drain_grace)) return;
  spdlog::warn("requests are still running after {}: aborting them", absl::FormatDuration(config_.drain_grace));
  service_->AbortAll();
  service_->WaitUntilIdle(kLastWrites);  // the last words leave before the connections do
}

void Verifier::ServeUntilSignal() {
  server_->ServeUntilSignal([this] { FinishCalls(); });
}

void Verifier::Drain() {
  server_->Drain([this] { FinishCalls(); });
}

}  // namespace foretoken::verifier
