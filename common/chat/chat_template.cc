// SPDX-License-Identifier: Apache-2.0
#include "common/chat/chat_template.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/chat/jinja_values.h"
#include "common/chat/template_nesting.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"

namespace foretoken::chat {
namespace {

constexpr absl::string_view kRaised = "Jinja Exception: ";  // the engine's words before those of raise_exception
constexpr absl::string_view kFailed = ": ";                 // "Error executing X at position 7: why"

absl::StatusOr<std::optional<jinja::program>> ParseTemplate(const std::optional<std::string>& source) {
  if (!source) return std::nullopt;
  try {
    const jinja::lexer_result lexed = jinja::lexer().tokenize(*source);
    FT_RETURN_IF_ERROR(CheckNesting(lexed.tokens));
    return jinja::parse_from_tokens(lexed);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", error.what()));
  }
}

// What the engine's message says, without the places in the template.
absl::Status RenderError(absl::string_view message, const RenderBudget& budget) {
  if (budget.is_exhausted()) {
    return absl::InvalidArgumentError(
        "expected a conversation that the chat template can render within its bounds, got too much work for it");
  }
  if (const size_t at = message.find(kRaised); at != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the chat template says: ", message.substr(at + kRaised.size())));
  }
  const size_t at = message.find(kFailed);
  if (at != absl::string_view::npos) message.remove_prefix(at + kFailed.size());
  return absl::InvalidArgumentError(absl::StrCat("the chat template cannot render it: ", message));
}

RenderedChat Collect(const jinja::string& output) {
  RenderedChat chat;
  for (const jinja::string_part& part : output.parts) {
    const size_t begin = chat.text.size();
    chat.text += part.val;
    if (part.is_input || part.val.empty()) continue;
    if (!chat.template_ranges.empty() && chat.template_ranges.back().end == begin) {
      chat.template_ranges.back().end = chat.text.size();
    } else {
      chat.template_ranges.push_back({.begin = begin, .end = chat.text.size()});
    }
  }
  return chat;
}

}  // namespace

struct ChatTemplate::Parts {
  std::optional<jinja::program> standard;
  std::optional<jinja::program> for_tools;
  std::map<std::string, std::string> special_tokens;
  Clock clock;

  void Fill(const Conversation& conversation, jinja::context& context) const {
    for (const auto& [name, text] : special_tokens) context.set_val(name, TemplateText(text));
    for (const auto& [name, value] : conversation.variables.items()) context.set_val(name, UserValue(value));
    context.set_val("messages", Messages(conversation.messages));
    context.set_val("tools", UserValue(conversation.tools));
    context.set_val("documents", UserValue(nullptr));
    context.set_val("add_generation_prompt", UserValue(conversation.add_generation_prompt));
    context.current_time = absl::ToTimeT(clock());
  }
};

bool IsReservedVariable(const std::string& name) {
  constexpr absl::string_view kReserved[] = {"messages", "tools", "documents", "add_generation_prompt"};
  return std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved) ||
         absl::EndsWith(name, "_token");
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(const TemplateFiles& files, Clock clock) {
  auto parts = std::make_unique<Parts>();
  FT_ASSIGN_OR_RETURN(parts->standard, ParseTemplate(files.standard));
  FT_ASSIGN_OR_RETURN(parts->for_tools, ParseTemplate(files.for_tools));
  parts->special_tokens = files.special_tokens;
  parts->clock = std::move(clock);
  return ChatTemplate(std::move(parts));
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const Conversation& conversation, size_t max_bytes) const {
  const bool wants_tools = !conversation.tools.is_null() && parts_->for_tools.has_value();
  const std::optional<jinja::program>& program = wants_tools ? parts_->for_tools : parts_->standard;
  if (!program)
    return absl::InvalidArgumentError("expected tools, because this model has a chat template only for them");
  RenderBudget budget(max_bytes);
  try {
    jinja::context context;
    parts_->Fill(conversation, context);
    const jinja::value output = jinja::runtime(context).execute(*program);
    return Collect(jinja::runtime::gather_string_parts(output)->val_str);
  } catch (const std::exception& error) {
    return RenderError(error.what(), budget);
  }
}

}  // namespace foretoken::chat
