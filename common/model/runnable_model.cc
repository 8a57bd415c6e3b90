// SPDX-License-Identifier: Apache-2.0
#include "common/model/runnable_model.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/model/memory_need.h"

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

// RESOURCE_EXHAUSTED where a device has too little memory, while none of it is taken yet.
absl::Status CheckMemory(const OpenedModel& opened, const TransformerOptions& options, int32_t num_blocks) {
  const int32_t num_ranks = opened.ranks->num_ranks();
  const kernels::MemoryNeed need =
      LargestRankNeed(opened.config, num_ranks, options, num_blocks, opened.ranks->backend(0).weight_quantization());
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::optional<std::string> refusal = opened.ranks->backend(rank).MemoryRefusal(need);
    if (refusal.has_value()) return absl::ResourceExhaustedError(*refusal);
  }
  return absl::OkStatus();
}

// Adds up what ranks, each on its own thread, have read.
class SummedProgress {
 public:
  explicit SummedProgress(const LoadProgress& progress) : progress_(progress) {}

  LoadProgress OfOneRank() {
    if (!progress_) return nullptr;
    return [this, before = size_t{0}](size_t num_bytes_done, size_t num_bytes) mutable {
      absl::MutexLock lock(&mutex_);
      num_bytes_done_ += num_bytes_done - std::exchange(before, num_bytes_done);
      progress_(num_bytes_done_, num_bytes);
    };
  }

 private:
  const LoadProgress& progress_;
  absl::Mutex mutex_;
  size_t num_bytes_done_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::StatusOr<std::vector<ModelWeights>> LoadShards(const OpenedModel& opened, const LoadProgress& progress) {
  const int32_t num_ranks = opened.ranks->num_ranks();
  std::vector<absl::StatusOr<ModelWeights>> shards(num_ranks);
  SummedProgress summed(progress);
  opened.ranks->Run([&](int rank) {
    shards[rank] = LoadWeights(opened.config, opened.checkpoint, opened.ranks->backend(rank), summed.OfOneRank(),
                               {.rank = rank, .num_ranks = num_ranks});
  });
  std::vector<ModelWeights> weights;
  for (absl::StatusOr<ModelWeights>& shard : shards) {
    FT_ASSIGN_OR_RETURN(weights.emplace_back(), std::move(shard));
  }
  return weights;
}

}  // namespace

absl::StatusOr<OpenedModel> OpenModel(const OpenOptions& options) {
  FT_ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(options.directory));
  FT_RETURN_IF_ERROR(CheckTensorParallel(config, options.tensor_parallel));
  FT_ASSIGN_OR_RETURN(std::unique_ptr<parallel::RankGroup> ranks, MakeRanks(options.backend, options.tensor_parallel));
  FT_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::Load(options.directory));
  FT_RETURN_IF_ERROR(tokenizer.CheckFits(config.vocab_size));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.directory));
  return OpenedModel{.config = std::move(config),
                     .tokenizer = std::move(tokenizer),
                     .checkpoint = std::move(checkpoint),
                     .ranks = std::move(ranks)};
}

absl::StatusOr<RunnableModel> LoadModel(OpenedModel opened, const LoadOptions& options, const LoadProgress& progress) {
  const TransformerOptions transformer_options = {.max_rows = options.max_rows,
                                                  .max_logit_rows = options.max_rows,
                                                  .max_positions = options.context.max_context_tokens};
  FT_RETURN_IF_ERROR(CheckMemory(opened, transformer_options, options.context.num_blocks));
  FT_ASSIGN_OR_RETURN(std::vector<ModelWeights> weights, LoadShards(opened, progress));
  auto transformer =
      std::make_unique<Transformer>(opened.config, std::move(weights), *opened.ranks, transformer_options);
  KvCache kv = transformer->MakeKvCache(options.context.num_blocks);
  return RunnableModel{.config = std::move(opened.config),
                       .tokenizer = std::move(opened.tokenizer),
                       .ranks = std::move(opened.ranks),
                       .transformer = std::move(transformer),
                       .kv = std::move(kv)};
}

}  // namespace foretoken::model
