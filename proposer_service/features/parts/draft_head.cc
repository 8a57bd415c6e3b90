// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/draft_head.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::IndexRange;
using kernels::Shape;
using quantization::FoundWeight;

absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const DraftVocabulary& vocabulary, const DrafterTensors& tensors,
                                                  const TargetFiles& target) {
  std::vector<int32_t> token_ids;
  if (!tensors.Contains("d2t")) {
    if (vocabulary.draft_vocab_size == vocabulary.vocab_size) return token_ids;
    return absl::NotFoundError(absl::StrCat(tensors.directory(), ": tensor d2t [", vocabulary.draft_vocab_size,
                                            "] is missing, and draft_vocab_size is not vocab_size ",
                                            vocabulary.vocab_size));
  }
  FT_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, tensors.Integers("d2t", vocabulary.draft_vocab_size));
  const int64_t limit = std::min(vocabulary.vocab_size, target.config.vocab_size);
  int64_t last = -1;
  for (int64_t row = 0; row < vocabulary.draft_vocab_size; ++row) {
    const int64_t offset = offsets[static_cast<size_t>(row)];
    const bool fits = offset >= -row && offset < limit - row && row + offset > last;
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(tensors.directory(),
                                                     ": tensor d2t: expected increasing ids from 0 to ", limit - 1,
                                                     ", got the offset ", offset, " at row ", row, " after id ", last));
    }
    last = row + offset;
    token_ids.push_back(static_cast<int32_t>(last));
  }
  return token_ids;
}

// "t2d" repeats "d2t". If the two disagree, one of them belongs to another head.
absl::Status CheckMarks(const DraftVocabulary& vocabulary, std::span<const int32_t> token_ids,
                        const DrafterTensors& tensors) {
  if (!tensors.Contains("t2d")) return absl::OkStatus();
  FT_ASSIGN_OR_RETURN(const std::vector<bool> marks, tensors.Flags("t2d", vocabulary.vocab_size));
  std::vector<bool> expected(marks.size(), token_ids.empty());
  for (const int32_t id : token_ids) expected[static_cast<size_t>(id)] = true;
  if (marks == expected) return absl::OkStatus();
  const auto first = std::mismatch(marks.begin(), marks.end(), expected.begin()).first - marks.begin();
  return absl::InvalidArgumentError(absl::StrCat(
      tensors.directory(), ": tensor t2d: expected to mark the ", vocabulary.draft_vocab_size, " ids of d2t, got ",
      std::ranges::count(marks, true), " marks, of which that of id ", first, " differs first"));
}

// The ids in runs of consecutive ones.
std::vector<IndexRange> RunsOf(std::span<const int32_t> token_ids) {
  std::vector<IndexRange> runs;
  for (const int32_t id : token_ids) {
    if (!runs.empty() && runs.back().end == id) {
      ++runs.back().end;
    } else {
      runs.push_back({id, id + 1});
    }
  }
  return runs;
}

}  // namespace

LogitForm FormOfTarget(const model::ModelConfig& target, float scale) {
  LogitForm form{.scale = scale * static_cast<float>(target.logit_multiplier)};
  if (target.logit_cap.has_value()) form.cap = static_cast<float>(*target.logit_cap);
  return form;
}

absl::StatusOr<float> ReadLogitScale(const model::JsonFields& config) {
  using Limits = std::numeric_limits<float>;
  FT_ASSIGN_OR_RETURN(const double scale, config.OrDefault<double>("logit_scale", 1));
  if (scale >= Limits::min() && scale <= Limits::max()) return static_cast<float>(scale);
  return config.Error("logit_scale", "expects a number above 0 that a float can hold, got ", scale);
}

DraftHead::DraftHead(std::span<const int32_t> token_ids, kernels::Backend& backend, const Sizes& sizes,
                     const LogitForm& form)
    : backend_(backend), form_(form), drafted_(backend, DType::kF32, Shape(sizes.max_rows, sizes.draft_vocab_size)) {
  if (token_ids.empty()) return;
  token_ids_ = tensor::Tensor(backend, DType::kI32, Shape(static_cast<int64_t>(token_ids.size())));
  backend.Copy(token_ids_.view().data, token_ids.data(), token_ids.size_bytes(), kernels::CopyKind::kToDevice);
  logits_ = tensor::Tensor(backend, DType::kF32, Shape(sizes.max_rows, sizes.vocab_size));
}

ConstTensorView DraftHead::Logits(const ConstTensorView& x, const kernels::Weight& weight,
                                  const std::optional<Term>& bias) {
  backend_.MatMul({.x = x, .weight = &weight, .out = drafted(x.shape[0])});
  return Complete(x.shape[0], bias);
}

ConstTensorView DraftHead::Complete(int64_t num_rows, const std::optional<Term>& bias) {
  if (form_.scale != 1 || form_.cap.has_value()) {
    backend_.CapLogits({.logits = drafted_.rows(num_rows), .scale = form_.scale, .cap = form_.cap});
  }
  if (bias.has_value()) {
    backend_.MatMul(
        {.x = bias->x, .weight = bias->weight, .mode = kernels::OutputMode::kAdd, .out = drafted_.rows(num_rows)});
  }
  if (token_ids_.empty()) return drafted_.rows(num_rows);
  backend_.SpreadLogits(
      {.logits = drafted_.rows(num_rows), .token_ids = token_ids_.view().as<int32_t>(), .out = logits_.rows(num_rows)});
  return logits_.rows(num_rows);
}

absl::StatusOr<DraftHeadParts> LoadDraftHead(const DraftVocabulary& vocabulary, const DrafterTensors& tensors,
                                             const TargetFiles& target) {
  DraftHeadParts parts;
  FT_ASSIGN_OR_RETURN(parts.token_ids, ReadTokenIds(vocabulary, tensors, target));
  FT_RETURN_IF_ERROR(CheckMarks(vocabulary, parts.token_ids, tensors));
  if (tensors.Contains("lm_head.weight")) {
    FT_ASSIGN_OR_RETURN(
        parts.weight,
        tensors.VocabularyMatrix({"lm_head.weight", Shape(vocabulary.draft_vocab_size, vocabulary.num_inputs)}));
    return parts;
  }
  if (vocabulary.num_inputs != target.config.hidden_size) {
    return absl::NotFoundError(absl::StrCat(tensors.directory(), ": tensor lm_head.weight [",
                                            vocabulary.draft_vocab_size, ", ", vocabulary.num_inputs,
                                            "] is missing, and the target's head takes ", target.config.hidden_size));
  }
  parts.form = FormOfTarget(target.config);
  FT_ASSIGN_OR_RETURN(const FoundWeight head, target.Head());
  std::vector<IndexRange> rows = RunsOf(parts.token_ids);
  if (rows.empty()) rows = {{0, vocabulary.draft_vocab_size}};  // without further padding
  parts.weight = PrepareRows(head, rows, tensors.backend());
  return parts;
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> LoadDraftEmbedding(const model::ModelConfig& block,
                                                                    const DrafterTensors& tensors,
                                                                    const TargetFiles& target) {
  const int64_t hidden = block.hidden_size;
  if (tensors.Contains("embed_tokens.weight")) {
    return tensors.VocabularyMatrix({"embed_tokens.weight", Shape(block.vocab_size, hidden)});
  }
  if (hidden != target.config.hidden_size) {
    return absl::NotFoundError(absl::StrCat(tensors.directory(), ": tensor embed_tokens.weight [", block.vocab_size,
                                            ", ", hidden, "] is missing, and the target's embedding is ",
                                            target.config.hidden_size, " wide"));
  }
  FT_ASSIGN_OR_RETURN(const FoundWeight embedding, target.Embedding());
  const IndexRange all = {0, target.config.vocab_size};
  return PrepareRows(embedding, {&all, 1}, tensors.backend());
}

}  // namespace foretoken::proposer
