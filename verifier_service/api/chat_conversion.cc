// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/chat_conversion.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error_text.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_template.h"
#include "common/rpc/status.h"
#include "verifier_service/api/request_bounds.h"
#include "verifier_service/api/request_conversion.h"

namespace foretoken::verifier {
namespace {

using chat::OrderedJson;

template <typename... Parts>
absl::Status Invalid(absl::string_view field, const Parts&... why) {
  return rpc::InvalidField(field, absl::StrCat(why...));
}

// Parses the fields of one conversation.
class FieldParser {
 public:
  absl::StatusOr<OrderedJson> Parse(const std::string& text, const std::string& field) {
    num_values_ += base::CountJsonValues(text);
    if (num_values_ > kMaxJsonValues) {
      return Invalid(field, "expected at most ", kMaxJsonValues, " JSON values in a conversation, got more");
    }
    absl::StatusOr<OrderedJson> json = base::ParseOrderedJson(text, field, kMaxJsonNames);
    if (json.ok()) return json;
    return Invalid(field, absl::StripPrefix(json.status().message(), absl::StrCat(field, ": ")));
  }

  absl::StatusOr<OrderedJson> ParseObject(const std::string& text, const std::string& field) {
    if (text.empty()) return OrderedJson::object();
    FT_ASSIGN_OR_RETURN(OrderedJson json, Parse(text, field));
    if (!json.is_object()) return Invalid(field, "expected a JSON object, got another value");
    return json;
  }

 private:
  size_t num_values_ = 0;
};

absl::StatusOr<OrderedJson> ConvertMessage(const v1::ChatMessage& message, const std::string& field,
                                           FieldParser& parser) {
  if (message.role().empty()) return Invalid(field + ".role", "expected a role, got none");
  const std::string fields_name = field + ".fields_json";
  FT_ASSIGN_OR_RETURN(OrderedJson fields, parser.ParseObject(message.fields_json(), fields_name));
  if (fields.contains("role")) return Invalid(fields_name, "expected no \"role\", because role is set");
  if (fields.contains("content") && !message.content().empty()) {
    return Invalid(fields_name, "expected no \"content\", because content is set");
  }
  OrderedJson out = {{"role", message.role()}, {"content", message.content()}};
  out.update(fields);
  return out;
}

absl::StatusOr<chat::Conversation> ConvertChat(const v1::Chat& chat) {
  chat::Conversation out;
  FieldParser parser;
  if (chat.messages().empty()) return Invalid("chat.messages", "expected at least one message, got none");
  for (int i = 0; i < chat.messages_size(); ++i) {
    FT_ASSIGN_OR_RETURN(OrderedJson message,
                        ConvertMessage(chat.messages(i), absl::StrCat("chat.messages[", i, "]"), parser));
    out.messages.push_back(std::move(message));
  }
  if (!chat.tools_json().empty()) {
    FT_ASSIGN_OR_RETURN(out.tools, parser.Parse(chat.tools_json(), "chat.tools_json"));
    if (!out.tools.is_array()) return Invalid("chat.tools_json", "expected a JSON array, got another value");
  }
  constexpr const char* kVariables = "chat.template_variables_json";
  FT_ASSIGN_OR_RETURN(out.variables, parser.ParseObject(chat.template_variables_json(), kVariables));
  for (const auto& [name, value] : out.variables.items()) {
    if (!chat::IsReservedVariable(name)) continue;
    return Invalid(kVariables, "expected variables that the server does not set, got ", base::Quoted(name));
  }
  if (chat.has_add_generation_prompt()) out.add_generation_prompt = chat.add_generation_prompt();
  return out;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ChatTokens(const v1::GenerateRequest& request, const ServedModel& model) {
  if (!model.chat_template_error.empty()) {
    return Invalid("chat", "expected text or tokens, because of this model's ", model.chat_template_error);
  }
  if (model.chat_template == nullptr) {
    return Invalid("chat", "expected text or tokens, because the checkpoint of this model has no chat template");
  }
  FT_ASSIGN_OR_RETURN(const chat::Conversation conversation, ConvertChat(request.chat()));
  const absl::StatusOr<chat::RenderedChat> rendered = model.chat_template->Render(conversation);
  // A template may quote the conversation.
  if (!rendered.ok()) return base::Confidential(Invalid("chat", rendered.status().message()));
  if (rendered->text.size() > model.max_prompt_bytes) {
    return Invalid("chat", "expected a conversation of at most ", model.max_prompt_bytes,
                   " bytes of text with what the chat template adds, got ", rendered->text.size());
  }
  return EncodeText({.text = rendered->text,
                     .field = "chat",
                     .add_special_tokens = false,
                     .parse_special_tokens = request.parse_special_tokens(),
                     .special_ranges = rendered->template_ranges},
                    model);
}

}  // namespace foretoken::verifier
