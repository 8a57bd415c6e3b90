// SPDX-License-Identifier: Apache-2.0
#include "common/chat/template_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/model_files.h"

namespace foretoken::chat {
namespace {

using nlohmann::json;

constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

absl::Status Expected(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status CheckLength(const std::string& path, const std::string& text) {
  if (text.size() <= kMaxTemplateBytes) return absl::OkStatus();
  return Expected(path,
                  absl::StrCat("expected a chat template of at most ", kMaxTemplateBytes, " bytes, got ", text.size()));
}

// The text of a token: "<s>", or {"content": "<s>", ...}.
std::optional<std::string> TokenText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

absl::Status ReadNamedTemplates(const std::string& path, const json& list, TemplateFiles& out) {
  for (const json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
        !entry["template"].is_string()) {
      return Expected(path, "chat_template: expected entries with a name and a template");
    }
    if (entry["name"] == "default") out.standard = entry["template"].get<std::string>();
    if (entry["name"] == "tool_use") out.for_tools = entry["template"].get<std::string>();
  }
  // Hugging Face renders conversations with tools even if there is no other template.
  if (out.standard || out.for_tools) return absl::OkStatus();
  return Expected(path, "chat_template: expected a template named \"default\" or \"tool_use\", got neither");
}

absl::Status ReadConfig(const std::string& path, const json& config, TemplateFiles& out) {
  if (!config.is_object()) return Expected(path, "expected a JSON object");
  for (const char* name : kTokenNames) {
    if (!config.contains(name)) continue;
    if (std::optional<std::string> text = TokenText(config[name])) out.special_tokens[name] = *std::move(text);
  }
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return absl::OkStatus();
  const json& value = config["chat_template"];
  if (value.is_string()) {
    out.standard = value.get<std::string>();
    return absl::OkStatus();
  }
  if (value.is_array()) return ReadNamedTemplates(path, value, out);
  return Expected(path, "chat_template: expected a text or a list of named texts");
}

// If there is a file of a template, the templates in tokenizer_config.json do not count. The folder's default.jinja
// goes before chat_template.jinja.
absl::Status ReadJinjaFiles(const std::string& directory, TemplateFiles& out) {
  std::optional<std::string> standard, for_tools;
  for (const auto& [name, to] : {std::pair("chat_template.jinja", &standard),
                                 {"additional_chat_templates/default.jinja", &standard},
                                 {"additional_chat_templates/tool_use.jinja", &for_tools}}) {
    absl::StatusOr<std::string> text = gguf::ReadModelFile(directory, name);
    if (text.ok()) {
      *to = *std::move(text);
    } else if (!absl::IsNotFound(text.status())) {
      return text.status();
    }
  }
  if (!standard && !for_tools) return absl::OkStatus();
  out.standard = std::move(standard);
  out.for_tools = std::move(for_tools);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TemplateFiles> ReadTemplateFiles(const std::string& directory) {
  TemplateFiles files;
  constexpr const char* kConfigName = "tokenizer_config.json";
  const std::string config_path = gguf::ModelFileName(directory, kConfigName);
  const absl::StatusOr<json> config = gguf::ReadModelJson(directory, kConfigName);
  if (config.ok()) {
    FT_RETURN_IF_ERROR(ReadConfig(config_path, *config, files));
  } else if (!absl::IsNotFound(config.status())) {
    return config.status();
  }
  FT_RETURN_IF_ERROR(ReadJinjaFiles(directory, files));
  if (files.standard) FT_RETURN_IF_ERROR(CheckLength(directory, *files.standard));
  if (files.for_tools) FT_RETURN_IF_ERROR(CheckLength(directory, *files.for_tools));
  return files;
}

}  // namespace foretoken::chat
