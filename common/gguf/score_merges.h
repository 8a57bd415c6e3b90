// SPDX-License-Identifier: Apache-2.0
// SentencePiece's BPE joins the two neighbours whose union has the best score; tokenizer.json has a list of merges
// instead. This makes the list from the scores: for every token each way to cut it into two tokens, best scores first.
// Among the ways to cut one token, the longer left part comes first, as in the files that transformers makes.
//
// Source: generate_merges of Hugging Face transformers, convert_slow_tokenizer.py.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "common/gguf/metadata.h"
#include "common/gguf/token_list.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

// A list of [LEFT, RIGHT]. Errors: INVALID_ARGUMENT if the file has no score for each token, or if the list would be
// much longer than any model's.
absl::StatusOr<nlohmann::json> MergesFromScores(const Metadata& metadata, std::span<const ListedToken> tokens);

}  // namespace foretoken::gguf
