// SPDX-License-Identifier: Apache-2.0
#include "common/model/runnable_model.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/checkpoint_fit.h"
#include "common/model/expert_plan.h"
#include "common/model/memory_need.h"
#include "common/model/weight_digest.h"
#include "common/model/weight_names.h"

namespace foretoken::model {

namespace {

absl::StatusOr<std::unique_ptr<parallel::RankGroup>> MakeRanks(kernels::BackendOptions options, int32_t num_ranks) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  options.num_ranks = num_ranks;
  for (options.rank = 0; options.rank < num_ranks; ++options.rank) {
    kernels::MadeBackend made = kernels::MakeBackend(options);
    if (made.backend == nullptr) return absl::InvalidArgumentError(made.error);
    backends.push_back(std::move(made.backend));
  }
  return parallel::RankGroup::Make(options.device, std::move(backends));
}

TransformerOptions TransformerOptionsOf(const LoadOptions& options) {
  return {.max_rows = options.max_rows,
          .max_logit_rows = options.max_rows,
          .max_positions = options.context.max_context_tokens};
}

absl::Status CheckBounds(const ModelConfig& config, const kernels::Backend& backend) {
  const kernels::ModelBounds most = backend.model_bounds();
  const auto check = [](absl::string_view field, int64_t got, int64_t most) {
    if (got <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", field, ": expected at most ", most, " on this device, got ", got));
  };
  FT_RETURN_IF_ERROR(check("vocab_size", config.vocab_size, most.vocab_size));
  return check("head_dim", config.head_dim, most.head_dim);
}

absl::StatusOr<kernels::MemoryNeed> NeedOf(const ExpertSource& source, const LoadOptions& options) {
  const int32_t num_ranks = source.ranks->num_ranks();
  const kernels::Backend& backend = source.ranks->backend(0);
  KeptForms forms;
  FT_ASSIGN_OR_RETURN(forms.integers, FindKeptIntegers(source.config, source.opened, backend, num_ranks));
  if (options.max_expert_bytes) forms.max_expert_bytes = static_cast<int64_t>(*options.max_expert_bytes) / num_ranks;
  return LargestRankNeed(source.config, num_ranks, TransformerOptionsOf(options), options.context.num_blocks, backend,
                         forms);
}

// RESOURCE_EXHAUSTED if a device has too little memory. This is checked before any of it is allocated.
absl::Status CheckMemory(const ExpertSource& source, const LoadOptions& options) {
  FT_ASSIGN_OR_RETURN(const kernels::MemoryNeed need, NeedOf(source, options));
  for (int rank = 0; rank < source.ranks->num_ranks(); ++rank) {
    const kernels::Backend& backend = source.ranks->backend(rank);
    const std::optional<std::string> refusal = backend.MemoryRefusal(need);
    if (!refusal.has_value()) continue;
    const bool may_keep_fewer =
        source.config.experts.num_experts > 0 && !options.max_expert_bytes.has_value() && !backend.keeps_all_experts();
    return absl::ResourceExhaustedError(
        absl::StrCat(*refusal, may_keep_fewer ? "; --expert_memory_mb keeps a part of the experts in memory" : ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ModelWeights>> LoadShards(const ExpertSource& source, const ExpertPlan& plan,
                                                     WeightReader& reader) {
  const int32_t num_ranks = source.ranks->num_ranks();
  std::vector<absl::StatusOr<ModelWeights>> shards(num_ranks);
  source.ranks->Run([&](int rank) {
    const auto load = plan.keeps_all() ? LoadWeights : LoadWithoutExperts;
    shards[rank] =
        load(source.config, source.opened, source.ranks->backend(rank), reader, {.rank = rank, .num_ranks = num_ranks});
    if (shards[rank].ok() && !plan.keeps_all()) shards[rank]->experts = MakeExpertStore(source, plan, rank);
  });
  std::vector<ModelWeights> weights;
  for (absl::StatusOr<ModelWeights>& shard : shards) {
    FT_ASSIGN_OR_RETURN(weights.emplace_back(), std::move(shard));
  }
  return weights;
}

absl::StatusOr<size_t> BytesToRead(const ModelConfig& config, const quantization::OpenedWeights& opened,
                                   bool reads_experts) {
  size_t num_bytes = 0;
  ModelWeightNames names = NameWeights(config);
  for (LayerWeightNames& layer : names.layers) {
    if (!reads_experts) layer.experts.clear();
  }
  for (const WeightName& name : ListWeights(names)) {
    FT_ASSIGN_OR_RETURN(const quantization::FoundWeight* weight,
                        opened.Find(name.name, name.shape, config.quantization));
    num_bytes += weight->num_bytes();
  }
  return num_bytes;
}

// Each form once: those of the layers' matrices, of the embedding, and of the head.
absl::StatusOr<std::vector<std::string>> MatrixFormats(const ModelConfig& config,
                                                       const quantization::OpenedWeights& opened) {
  const ModelWeightNames names = NameWeights(config);
  std::vector<WeightName> matrices;
  for (const LayerWeightNames& layer : names.layers)
    std::ranges::move(ListMatrices(layer), std::back_inserter(matrices));
  matrices.insert(matrices.end(), {names.embed, names.head});
  std::vector<std::string> formats;
  for (const WeightName& name : matrices) {
    FT_ASSIGN_OR_RETURN(const quantization::FoundWeight* weight,
                        opened.Find(name.name, name.shape, config.quantization));
    std::string format = weight->stored == nullptr ? Name(weight->floats.dtype) : weight->format;
    if (std::ranges::find(formats, format) == formats.end()) formats.push_back(std::move(format));
  }
  return formats;
}

WeightUse UseOf(std::span<const ModelWeights> ranks, int64_t num_chosen, std::vector<std::string> formats) {
  WeightUse use = {.formats = std::move(formats)};
  size_t num_bytes = 0;
  double num_weights = 0;
  const auto count = [&](const kernels::Weight& weight, bool is_read) {
    num_bytes += weight.num_bytes();
    num_weights += static_cast<double>(weight.out_features()) * static_cast<double>(weight.in_features());
    if (is_read) use.bytes_per_step += weight.num_bytes();
  };
  for (const ModelWeights& weights : ranks) {
    for (const LayerWeights& layer : weights.layers) {
      for (const auto* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &layer.router}) {
        if (*weight != nullptr) count(**weight, /*is_read=*/true);
      }
    }
    if (weights.experts != nullptr) {
      for (const std::vector<ExpertSize>& layer : weights.experts->sizes()) {
        for (const ExpertSize& size : layer) {
          num_bytes += size.num_bytes;
          num_weights += static_cast<double>(size.num_weights);
        }
        // A token reads its own experts, which are of one size.
        if (!layer.empty()) use.bytes_per_step += num_chosen * layer[0].num_bytes;
      }
    }
    count(weights.head_or_embed(), /*is_read=*/true);
    if (weights.head != nullptr) count(*weights.embed, /*is_read=*/false);
  }
  use.bits_per_weight = 8 * static_cast<double>(num_bytes) / num_weights;
  return use;
}

class Stopwatch {
 public:
  // Returns the seconds since the last call, or since construction.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(since_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace

std::string Describe(const LoadTimes& times) {
  const ReadTimes& reading = times.reading;
  const double gigabytes = static_cast<double>(reading.num_bytes) / 1e9;
  const double percent = 100 / std::max(reading.total(), 1e-9);
  return absl::StrFormat(
      "tokenizer %.2f s; weights %.2f s, %.2f GB at %.2f GB/s (reading %.0f %%, packing %.0f %%, digest %.0f %%, "
      "releasing pages %.0f %%); K/V and tables %.2f s",
      times.tokenizer, times.weights, gigabytes, gigabytes / std::max(times.weights, 1e-9), percent * reading.reading,
      percent * reading.packing, percent * reading.digest, percent * reading.releasing, times.transformer);
}

absl::StatusOr<OpenedModel> OpenModel(const OpenOptions& options) {
  FT_ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(options.directory));
  FT_RETURN_IF_ERROR(CheckTensorParallel(config, options.tensor_parallel));
  FT_ASSIGN_OR_RETURN(std::unique_ptr<parallel::RankGroup> ranks, MakeRanks(options.backend, options.tensor_parallel));
  Stopwatch stopwatch;
  FT_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::Load(options.directory));
  const double tokenizer_seconds = stopwatch.Lap();
  FT_RETURN_IF_ERROR(tokenizer.CheckFits(config.vocab_size));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.directory));
  auto weights = std::make_unique<const quantization::OpenedWeights>(
      std::make_shared<const weights::Checkpoint>(std::move(checkpoint)));
  FT_ASSIGN_OR_RETURN(std::vector<std::string> notes, FitToCheckpoint(*weights, config));
  return OpenedModel{.config = std::move(config),
                     .tokenizer = std::move(tokenizer),
                     .weights = std::move(weights),
                     .ranks = std::move(ranks),
                     .notes = std::move(notes),
                     .times = {.tokenizer = tokenizer_seconds}};
}

absl::StatusOr<kernels::MemoryNeed> NeedOf(const OpenedModel& opened, const LoadOptions& options) {
  return NeedOf(ExpertSource{.config = opened.config, .opened = *opened.weights, .ranks = opened.ranks.get()}, options);
}

absl::StatusOr<RunnableModel> LoadModel(OpenedModel opened, const LoadOptions& options, const LoadProgress& progress) {
  const quantization::OpenedWeights& stored = *opened.weights;
  const ExpertSource source = {.config = opened.config, .opened = stored, .ranks = opened.ranks.get()};
  FT_RETURN_IF_ERROR(CheckBounds(opened.config, opened.ranks->backend(0)));
  FT_RETURN_IF_ERROR(CheckMemory(source, options));
  FT_ASSIGN_OR_RETURN(const ExpertPlan plan, PlanExperts(source, options.max_expert_bytes));
  std::optional<WeightDigest> digest;
  if (options.digest_weights) {
    FT_ASSIGN_OR_RETURN(digest, WeightDigest::Make(opened.config, stored));
  }
  FT_ASSIGN_OR_RETURN(std::vector<std::string> formats, MatrixFormats(opened.config, stored));
  FT_ASSIGN_OR_RETURN(const size_t num_bytes,
                      BytesToRead(opened.config, stored, plan.keeps_all() || options.digest_weights));
  WeightReader reader({.num_bytes = num_bytes, .progress = progress, .digest = digest ? &*digest : nullptr});
  LoadTimes times = opened.times;
  Stopwatch stopwatch;
  if (!plan.keeps_all() && options.digest_weights) {
    FT_RETURN_IF_ERROR(DigestExperts(opened.config, stored, reader));
  }
  FT_ASSIGN_OR_RETURN(std::vector<ModelWeights> weights, LoadShards(source, plan, reader));
  std::string weight_digest = digest ? digest->Finish() : "";
  times.weights = stopwatch.Lap();
  times.reading = reader.times();
  WeightUse weight_use = UseOf(weights, opened.config.experts.num_chosen, std::move(formats));
  auto transformer =
      std::make_unique<Transformer>(opened.config, std::move(weights), *opened.ranks, TransformerOptionsOf(options));
  KvCache kv = transformer->MakeKvCache(options.context.num_blocks);
  times.transformer = stopwatch.Lap();
  return RunnableModel{.config = std::move(opened.config),
                       .tokenizer = std::move(opened.tokenizer),
                       .ranks = std::move(opened.ranks),
                       .transformer = std::move(transformer),
                       .kv = std::move(kv),
                       .weight_digest = std::move(weight_digest),
                       .weight_use = std::move(weight_use),
                       .times = times};
}

}  // namespace foretoken::model
