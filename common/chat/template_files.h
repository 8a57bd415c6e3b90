// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's files say about chat: its templates, and the special tokens that templates may name.
//
// Two templates count, "default" and "tool_use". They are files: chat_template.jinja, which is the default one, and
// additional_chat_templates/NAME.jinja. If there is no such file, they stand in "chat_template" of
// tokenizer_config.json: a text, which is the default one, or a list of named texts.
// A GGUF file has them in its header.
// Source: PreTrainedTokenizerBase.get_chat_template and special_tokens_map of Hugging Face transformers 4.57.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace foretoken::chat {

// The longest template. The longest known one has 30 KB.
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

struct TemplateFiles {
  std::optional<std::string> standard;                // unset: the model has no chat template
  std::optional<std::string> for_tools;               // used instead if the conversation has tools
  std::map<std::string, std::string> special_tokens;  // "bos_token" to "<s>"
};

// INVALID_ARGUMENT with the file, the field, expected and got.
absl::StatusOr<TemplateFiles> ReadTemplateFiles(const std::string& directory);

}  // namespace foretoken::chat
