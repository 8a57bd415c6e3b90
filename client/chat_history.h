// SPDX-License-Identifier: Apache-2.0
// A conversation: the system message, and what user and model said in turn.
//
//   ChatHistory history("Be brief.");
//   *request.mutable_chat() = history.Ask("What is a queue?");
//   history.Add("What is a queue?", answer);
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

class ChatHistory {
 public:
  // An empty text: no system message.
  explicit ChatHistory(std::string system) : system_(std::move(system)) {}

  // The conversation up to this question, which is not kept.
  foretoken::v1::Chat Ask(absl::string_view question) const;
  void Add(std::string question, std::string answer);
  void Reset() { turns_.clear(); }
  void set_system(std::string system) { system_ = std::move(system); }

  int num_turns() const { return static_cast<int>(turns_.size()); }
  // A JSON list of {"role": ..., "content": ...}, as other programs read it.
  std::string ToJsonText() const;

 private:
  struct Turn {
    std::string question;
    std::string answer;
  };
  foretoken::v1::Chat Messages() const;

  std::string system_;
  std::vector<Turn> turns_;
};

}  // namespace foretoken::client
