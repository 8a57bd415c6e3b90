// SPDX-License-Identifier: Apache-2.0
#include "common/model/runnable_model.h"

#include <utility>

#include "common/base/status_macros.h"

namespace foretoken::model {

absl::StatusOr<OpenedModel> OpenModel(const OpenOptions& options) {
  kernels::MadeBackend made = kernels::MakeBackend(options.backend);
  if (made.backend == nullptr) return absl::InvalidArgumentError(made.error);
  FT_ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(options.directory));
  FT_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::Load(options.directory));
  FT_RETURN_IF_ERROR(tokenizer.CheckFits(config.vocab_size));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.directory));
  return OpenedModel{.config = std::move(config),
                     .tokenizer = std::move(tokenizer),
                     .checkpoint = std::move(checkpoint),
                     .backend = std::move(made.backend)};
}

absl::StatusOr<RunnableModel> LoadModel(OpenedModel opened, const LoadOptions& options, const LoadProgress& progress) {
  kernels::Backend& backend = *opened.backend;
  FT_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(opened.config, opened.checkpoint, backend, progress));
  const TransformerOptions transformer_options = {.max_rows = options.max_rows,
                                                  .max_logit_rows = options.max_rows,
                                                  .max_positions = options.context.max_context_tokens};
  auto transformer = std::make_unique<Transformer>(opened.config, std::move(weights), backend, transformer_options);
  KvCache kv = MakeKvCache(opened.config, options.context.num_blocks, backend);
  return RunnableModel{.config = std::move(opened.config),
                       .tokenizer = std::move(opened.tokenizer),
                       .backend = std::move(opened.backend),
                       .transformer = std::move(transformer),
                       .kv = std::move(kv)};
}

}  // namespace foretoken::model
