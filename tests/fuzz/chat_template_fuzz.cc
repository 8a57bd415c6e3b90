// SPDX-License-Identifier: Apache-2.0
// Reads the input as a model's chat template. It is refused with a reason, or it renders conversations: it fails with a
// reason, or makes a text whose parts that the template wrote are in order and apart. The same conversation gives the
// same text. A render may do only a small part of the work that a server allows, which takes a second.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/chat/chat_template.h"
#include "kernels/check.h"

namespace foretoken::chat {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

// One has all that a conversation can have, and one has nothing.
const Conversation kConversations[] = {
    {.messages = OrderedJson::parse(R"([
       {"role": "system", "content": "Be <|brief|>."},
       {"role": "user", "name": "ann", "content": "  Hi \u00e9\u4e2d\n"},
       {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, true, null]}}}]},
       {"role": "tool", "tool_call_id": "1", "content": "3"},
       {"role": "user", "content": [{"type": "text", "text": "and?"}]}])"),
     .tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "add", "description": "adds",
       "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}])"),
     .variables = {{"enable_thinking", false}, {"names", {"x", "y"}}, {"limit", 3}}},
    {}};

void CheckRender(const ChatTemplate& chat_template, const Conversation& conversation) {
  const absl::StatusOr<RenderedChat> chat = chat_template.Render(conversation, kMaxBytes);
  const absl::StatusOr<RenderedChat> again = chat_template.Render(conversation, kMaxBytes);
  FT_CHECK(chat.status() == again.status());
  if (!chat.ok()) {
    FT_CHECK(absl::IsInvalidArgument(chat.status()) && !chat.status().message().empty());
    return;
  }
  FT_CHECK(chat->text == again->text);
  size_t end = 0;
  for (const tokenizer::TextRange& range : chat->template_ranges) {
    FT_CHECK((range.begin > end || (range.begin == 0 && end == 0)) && range.end > range.begin);
    end = range.end;
  }
  FT_CHECK(end <= chat->text.size());
}

}  // namespace
}  // namespace foretoken::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  const std::string source(reinterpret_cast<const char*>(data), size);
  const auto chat_template =
      chat::ChatTemplate::Parse({.standard = source, .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                                [] { return absl::UnixEpoch(); });
  if (!chat_template.ok()) {
    FT_CHECK(absl::IsInvalidArgument(chat_template.status()) &&
             absl::StartsWith(chat_template.status().message(), "chat template: "));
    return 0;
  }
  for (const chat::Conversation& conversation : chat::kConversations) chat::CheckRender(*chat_template, conversation);
  return 0;
}
