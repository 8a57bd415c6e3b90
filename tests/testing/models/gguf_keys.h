// SPDX-License-Identifier: Apache-2.0
// Writes the keys of a GGUF file for a config.json and a tokenizer.json, as converters do.
#pragma once

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/testing/models/gguf_writer.h"

namespace foretoken::testing {

// What GGUF calls the family of a config.json.
std::string GgufArchitecture(const nlohmann::json& config);

// Adds the configuration, and the tensors that divide rotary frequencies.
void AddConfig(const nlohmann::json& config, GgufWriter& writer);

// Adds a tokenizer.json's tokenizer. Tokens of SentencePiece get a score by the merge that makes them, and `merges` are
// left out.
void AddTokenizer(const nlohmann::json& tokenizer, const std::string& pre, GgufWriter& writer);

// A tokenizer.json with a token for each id: for tests of weights alone.
nlohmann::json PlainTokenizer(int64_t vocab_size);

// The keys of a model with this config.json, and an embedding of zeros as its only tensor.
GgufWriter GgufKeys(const nlohmann::json& config);

}  // namespace foretoken::testing
