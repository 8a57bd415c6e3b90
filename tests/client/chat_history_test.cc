// SPDX-License-Identifier: Apache-2.0
// What a conversation remembers. If these tests fail, the model is asked with messages missing or in a wrong order.
#include "client/chat_history.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

std::string Roles(const foretoken::v1::Chat& chat) {
  std::string roles;
  for (const foretoken::v1::ChatMessage& message : chat.messages())
    roles += message.role() + ":" + message.content() + " ";
  return roles;
}

TEST(ChatHistory, SendsEveryTurnInOrder) {
  ChatHistory history("S");
  EXPECT_EQ(Roles(history.Ask("q")), "system:S user:q ");
  EXPECT_EQ(Roles(history.Ask("q")), "system:S user:q ") << "a question is kept only with its answer";
  history.Add("q", "a");
  EXPECT_EQ(Roles(history.Ask("r")), "system:S user:q assistant:a user:r ");
  history.set_system("");
  EXPECT_EQ(Roles(history.Ask("r")), "user:q assistant:a user:r ");
  history.Reset();
  EXPECT_EQ(Roles(history.Ask("r")), "user:r ");
}

TEST(ChatHistory, IsSavedAsJson) {
  ChatHistory history("");
  history.Add("a \"quoted\" \u00fc", "line\nline");
  EXPECT_EQ(nlohmann::json::parse(history.ToJsonText()),
            nlohmann::json::parse(R"([{"role": "user", "content": "a \"quoted\" ü"},
                                      {"role": "assistant", "content": "line\nline"}])"));
}

}  // namespace
}  // namespace foretoken::client
