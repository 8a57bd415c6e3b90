// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/loaded_model.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/gguf/model_files.h"
#include "spdlog/spdlog.h"
#include "verifier_service/numerics_fingerprint.h"
#include "verifier_service/read_rate.h"

namespace foretoken::verifier {
namespace {

absl::StatusOr<std::vector<int32_t>> EndTokenIds(const model::GenerationConfig& generation,
                                                 const model::ModelConfig& config, const std::string& directory) {
  const bool recommended = !generation.eos_token_ids.empty();
  std::vector<int32_t> ids;
  for (const int64_t id : recommended ? generation.eos_token_ids : config.eos_token_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(gguf::ModelFileName(directory, recommended ? "generation_config.json" : "config.json"),
                       ": eos_token_id: expected an id below the vocabulary's ", config.vocab_size, ", got ", id));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::Status FingerprintMismatch(absl::string_view expected, absl::string_view got) {
  return absl::FailedPreconditionError(
      absl::StrCat("--numerics_fingerprint: expected \"", expected, "\", got \"", got, "\""));
}

struct ParsedTemplate {
  std::optional<chat::ChatTemplate> chat_template;
  std::string error;
};

// A template that cannot be parsed takes chat from the model, and nothing else.
absl::StatusOr<ParsedTemplate> ParseTemplate(const std::string& directory) {
  FT_ASSIGN_OR_RETURN(const chat::TemplateFiles files, chat::ReadTemplateFiles(directory));
  ParsedTemplate out;
  if (!files.standard && !files.for_tools) return out;
  absl::StatusOr<chat::ChatTemplate> parsed = chat::ChatTemplate::Parse(files, absl::Now);
  if (parsed.ok()) {
    out.chat_template = *std::move(parsed);
  } else {
    out.error = std::string(parsed.status().message());
    spdlog::warn("{}: conversations are refused, because the model's {}", directory, out.error);
  }
  return out;
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

// Where the K/V cache ends contexts before --max_context_tokens or the model's own limit, nobody must find it out by
// refused requests.
absl::Status CheckContext(const Config& config, const model::ContextPlan& context, const model::ModelConfig& model,
                          kernels::KvCacheDtype dtype) {
  const int64_t wanted = config.max_context_tokens.value_or(model.max_position_embeddings);
  if (context.max_context_tokens >= wanted) return absl::OkStatus();
  const int64_t needed_mb = model::KvMebibytes(model, dtype, wanted);
  if (config.max_context_tokens.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--max_context_tokens: expected at most the ",
                                                   context.max_context_tokens, " tokens that the K/V cache holds, got ",
                                                   wanted, ", which need --kv_cache_mb=", needed_mb));
  }
  spdlog::warn(
      "contexts end at {} tokens, because the K/V cache holds no more; the model's limit of {} needs "
      "--kv_cache_mb={}",
      context.max_context_tokens, wanted, needed_mb);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const Config& config, const model::LoadProgress& progress) {
  const std::string& directory = config.model_directory;
  FT_ASSIGN_OR_RETURN(model::OpenedModel opened, model::OpenModel({.directory = directory,
                                                                   .backend = {.device = config.device,
                                                                               .num_threads = config.num_threads,
                                                                               .isa = config.cpu_isa,
                                                                               .quantization = config.quantization},
                                                                   .tensor_parallel = config.tensor_parallel}));
  FT_ASSIGN_OR_RETURN(const model::GenerationConfig generation, model::LoadGenerationConfig(directory));
  FT_ASSIGN_OR_RETURN(std::vector<int32_t> end_token_ids, EndTokenIds(generation, opened.config, directory));
  FT_ASSIGN_OR_RETURN(ParsedTemplate chat, ParseTemplate(directory));
  FT_ASSIGN_OR_RETURN(const model::ContextPlan context,
                      model::PlanContext({.kv_cache_mb = config.kv_cache_mb,
                                          .max_context_tokens = config.max_context_tokens,
                                          .kv_cache_dtype = opened.ranks->backend(0).kv_cache_dtype()},
                                         opened.config));
  FT_RETURN_IF_ERROR(CheckContext(config, context, opened.config, opened.ranks->backend(0).kv_cache_dtype()));
  std::string vocabulary = base::ToHex(tokenizer::VocabularyFingerprint(opened.tokenizer.vocabulary()));
  const std::string numerics =
      DescribeNumerics({.backend = opened.ranks->backend(0).Describe(),
                        .tensor_parallel = config.tensor_parallel,
                        .takes_long_divisors = model::TakesLongDivisors(opened.config.rope, context.max_context_tokens),
                        .num_tokens = static_cast<int32_t>(opened.tokenizer.vocabulary().num_ids()),
                        .vocabulary = vocabulary,
                        .end_token_ids = end_token_ids});
  const std::string& expected = config.numerics_fingerprint;
  if (!expected.empty() && !absl::StartsWith(expected, absl::StrCat(numerics, " "))) {
    return FingerprintMismatch(expected, absl::StrCat(numerics, " ..."));
  }
  FT_ASSIGN_OR_RETURN(const std::string config_text, gguf::ReadModelFile(directory, "config.json"));
  for (const std::string& note : opened.notes) spdlog::warn("{}", note);
  FT_ASSIGN_OR_RETURN(model::RunnableModel runnable,
                      model::LoadModel(std::move(opened),
                                       {.max_rows = config.engine.max_step_rows,
                                        .context = context,
                                        .digest_weights = true,
                                        .max_expert_bytes = model::ExpertBytes(config.expert_memory_mb)},
                                       progress));
  std::string fingerprint = ComputeNumericsFingerprint(numerics, config_text, runnable.weight_digest);
  if (!expected.empty() && expected != fingerprint) return FingerprintMismatch(expected, fingerprint);
  const double read_bytes_per_second =
      config.device == "cpu" ? MeasureReadRate(runnable.weight_use.bytes_per_step, config.num_threads) : 0;
  return std::unique_ptr<LoadedModel>(new LoadedModel{{std::move(runnable)},
                                                      std::move(chat.chat_template),
                                                      std::move(chat.error),
                                                      std::move(end_token_ids),
                                                      DefaultSampling(generation),
                                                      std::move(vocabulary),
                                                      std::move(fingerprint),
                                                      read_bytes_per_second});
}

}  // namespace foretoken::verifier
