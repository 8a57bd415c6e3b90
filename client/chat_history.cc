// SPDX-License-Identifier: Apache-2.0
#include "client/chat_history.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

void AddMessage(const char* role, absl::string_view content, foretoken::v1::Chat& chat) {
  foretoken::v1::ChatMessage& message = *chat.add_messages();
  message.set_role(role);
  message.set_content(std::string(content));
}

}  // namespace

foretoken::v1::Chat ChatHistory::Messages() const {
  foretoken::v1::Chat chat;
  if (!system_.empty()) AddMessage("system", system_, chat);
  for (const Turn& turn : turns_) {
    AddMessage("user", turn.question, chat);
    AddMessage("assistant", turn.answer, chat);
  }
  return chat;
}

foretoken::v1::Chat ChatHistory::Ask(absl::string_view question) const {
  foretoken::v1::Chat chat = Messages();
  AddMessage("user", question, chat);
  return chat;
}

void ChatHistory::Add(std::string question, std::string answer) {
  turns_.push_back({.question = std::move(question), .answer = std::move(answer)});
}

std::string ChatHistory::ToJsonText() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const foretoken::v1::Chat chat = Messages();
  for (const foretoken::v1::ChatMessage& message : chat.messages()) {
    list.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  return list.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace foretoken::client
