// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/target_files.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/checkpoint_fit.h"
#include "common/model/weight_names.h"
#include "common/quantization/find_weight.h"
#include "common/quantization/prepare_matrix.h"

namespace foretoken::proposer {

using quantization::FoundWeight;

namespace {

absl::StatusOr<TargetFiles> Open(const std::string& directory) {
  FT_ASSIGN_OR_RETURN(model::ModelConfig config, model::LoadModelConfig(directory));
  FT_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::Load(directory));
  FT_RETURN_IF_ERROR(tokenizer.CheckFits(config.vocab_size));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(directory));
  FT_RETURN_IF_ERROR(model::FitToCheckpoint(checkpoint, config).status());
  return TargetFiles{
      .config = std::move(config), .tokenizer = std::move(tokenizer), .checkpoint = std::move(checkpoint)};
}

}  // namespace

absl::StatusOr<FoundWeight> TargetFiles::Embedding() const {
  const model::WeightName embed = model::NameWeights(config).embed;
  return quantization::FindWeight(checkpoint, embed.name, embed.shape, config.quantization);
}

absl::StatusOr<FoundWeight> TargetFiles::Head() const {
  const model::WeightName head = model::NameWeights(config).head;
  return quantization::FindWeight(checkpoint, head.name, head.shape, config.quantization);
}

std::unique_ptr<kernels::Weight> PrepareRows(const FoundWeight& weight, std::span<const kernels::IndexRange> rows,
                                             kernels::Backend& backend) {
  std::vector<quantization::MatrixPart> parts;
  for (const kernels::IndexRange& range : rows) parts.push_back({.weight = &weight, .rows = range});
  return quantization::PrepareMatrix({.parts = parts,
                                      .quantization = backend.head_quantization(),
                                      .fetch = weights::FetchPages,
                                      .release = weights::ReleasePages,
                                      .fetch_tensor = weights::FetchPages,
                                      .release_tensor = weights::ReleasePages},
                                     backend);
}

absl::StatusOr<TargetFiles> OpenTarget(const std::string& directory) {
  absl::StatusOr<TargetFiles> target = Open(directory);
  if (target.ok()) return target;
  return absl::Status(target.status().code(), absl::StrCat("target: ", target.status().message()));
}

TargetSizes SizesOf(const TargetFiles& target) {
  return {.hidden_size = target.config.hidden_size,
          .num_layers = target.config.num_layers,
          .vocab_size = target.config.vocab_size,
          .num_tokens = target.num_tokens(),
          .max_positions = target.config.max_position_embeddings};
}

ProposerDescription DescribeFor(const TargetFiles& target, std::string method) {
  const tokenizer::Vocabulary& vocabulary = target.tokenizer.vocabulary();
  return {.method = std::move(method),
          .vocabulary_fingerprint = base::ToHex(tokenizer::VocabularyFingerprint(vocabulary)),
          .token_digests = tokenizer::TokenDigests(vocabulary),
          .num_tokens = static_cast<int32_t>(target.config.vocab_size)};
}

}  // namespace foretoken::proposer
