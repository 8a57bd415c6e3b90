// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/loaded_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/weights/checkpoint.h"
#include "kernels/make_backend.h"
#include "verifier_service/numerics_fingerprint.h"

namespace foretoken::verifier {
namespace {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const Config& config) {
  kernels::MadeBackend made =
      kernels::MakeBackend({.device = config.device, .num_threads = config.num_threads, .isa = config.cpu_isa});
  if (made.backend == nullptr) return absl::InvalidArgumentError(made.error);
  return std::move(made.backend);
}

absl::StatusOr<std::vector<int32_t>> EndTokenIds(const model::GenerationConfig& generation,
                                                 const model::ModelConfig& config, const std::string& directory) {
  const bool recommended = !generation.eos_token_ids.empty();
  std::vector<int32_t> ids;
  for (const int64_t id : recommended ? generation.eos_token_ids : config.eos_token_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, recommended ? "/generation_config.json" : "/config.json",
                       ": eos_token_id: expected an id below the vocabulary's ", config.vocab_size, ", got ", id));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::Status CheckFingerprint(const std::string& expected, const std::string& got) {
  if (expected.empty() || expected == got) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--numerics_fingerprint: expected \"", expected, "\", got \"", got, "\""));
}

kernels::SamplingParams DefaultSampling(const model::GenerationConfig& generation) {
  kernels::SamplingParams sampling;
  sampling.temperature = generation.temperature.value_or(sampling.temperature);
  sampling.top_k = generation.top_k.value_or(sampling.top_k);
  sampling.top_p = generation.top_p.value_or(sampling.top_p);
  sampling.min_p = generation.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = generation.repetition_penalty.value_or(sampling.repetition_penalty);
  return sampling;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const Config& config, const model::LoadProgress& progress) {
  const std::string& directory = config.model_directory;
  FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeBackend(config));
  FT_ASSIGN_OR_RETURN(model::ModelConfig model_config, model::LoadModelConfig(directory));
  FT_ASSIGN_OR_RETURN(const model::GenerationConfig generation, model::LoadGenerationConfig(directory));
  FT_ASSIGN_OR_RETURN(std::vector<int32_t> end_token_ids, EndTokenIds(generation, model_config, directory));
  FT_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::Load(directory));
  FT_RETURN_IF_ERROR(tokenizer.CheckFits(model_config.vocab_size));
  FT_ASSIGN_OR_RETURN(const ContextPlan context, PlanContext(config, model_config));
  FT_ASSIGN_OR_RETURN(const weights::Checkpoint checkpoint, weights::Checkpoint::Open(directory));

  FT_ASSIGN_OR_RETURN(
      std::string fingerprint,
      ComputeNumericsFingerprint({.config = model_config, .checkpoint = checkpoint, .backend = backend->Describe()}));
  FT_RETURN_IF_ERROR(CheckFingerprint(config.numerics_fingerprint, fingerprint));
  FT_ASSIGN_OR_RETURN(model::ModelWeights weights, model::LoadWeights(model_config, checkpoint, *backend, progress));
  const model::TransformerOptions options = {.max_rows = config.engine.max_step_rows,
                                             .max_logit_rows = config.engine.max_step_rows,
                                             .max_positions = context.max_context_tokens};
  auto transformer = std::make_unique<model::Transformer>(model_config, std::move(weights), *backend, options);
  model::KvCache kv = model::MakeKvCache(model_config, context.num_blocks, *backend);
  std::string vocabulary = base::ToHex(tokenizer::VocabularyFingerprint(tokenizer.vocabulary()));
  return std::unique_ptr<LoadedModel>(new LoadedModel{.config = std::move(model_config),
                                                      .tokenizer = std::move(tokenizer),
                                                      .end_token_ids = std::move(end_token_ids),
                                                      .default_sampling = DefaultSampling(generation),
                                                      .vocabulary_fingerprint = std::move(vocabulary),
                                                      .numerics_fingerprint = std::move(fingerprint),
                                                      .backend = std::move(backend),
                                                      .transformer = std::move(transformer),
                                                      .kv = std::move(kv)});
}

std::string ArchitectureName(model::Architecture architecture) {
  switch (architecture) {
    case model::Architecture::kLlama:
      return "LlamaForCausalLM";
    case model::Architecture::kMistral:
      return "MistralForCausalLM";
    case model::Architecture::kQwen2:
      return "Qwen2ForCausalLM";
    case model::Architecture::kQwen3:
      return "Qwen3ForCausalLM";
  }
  return {};
}

}  // namespace foretoken::verifier
