// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/transformer_draft.h"

#include <utility>

#include "common/base/sha256.h"

namespace foretoken::proposer {

TransformerDraft::TransformerDraft(model::RunnableModel model)
    : model_(std::move(model)),
      limits_{.max_rows = model_.transformer->options().max_rows,
              .max_positions = model_.transformer->options().max_positions,
              .num_blocks = model_.kv.num_blocks,
              .vocab_size = model_.transformer->config().vocab_size,
              .num_tokens = model_.num_tokens()} {}

Drafter MakeTransformerDrafter(model::RunnableModel model) {
  const tokenizer::Vocabulary& vocabulary = model.tokenizer.vocabulary();
  ProposerDescription description = {
      .method = "draft",
      .vocabulary_fingerprint = base::ToHex(tokenizer::VocabularyFingerprint(vocabulary)),
      .token_digests = tokenizer::TokenDigests(vocabulary),
      .num_tokens = static_cast<int32_t>(model.transformer->config().vocab_size)};
  return {.model = std::make_unique<TransformerDraft>(std::move(model)), .description = std::move(description)};
}

}  // namespace foretoken::proposer
