// SPDX-License-Identifier: Apache-2.0
// Renders the conversations of a file that hugging_face.py wrote, and compares. Exits with 1 if a text differs.
#include <fstream>
#include <iostream>
#include <string>

#include "absl/time/time.h"
#include "common/chat/chat_template.h"

namespace foretoken::chat {
namespace {

// What we make of a case: a text, or false if the template refuses.
OrderedJson Render(const OrderedJson& item, absl::Time now) {
  TemplateFiles files{.standard = item["template"].get<std::string>()};
  for (const auto& [name, text] : item["tokens"].items()) files.special_tokens[name] = text.get<std::string>();
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Parse(files, [now] { return now; });
  if (!chat.ok()) return std::string(chat.status().message());
  const absl::StatusOr<RenderedChat> rendered =
      chat->Render({.messages = item["messages"],
                    .tools = item["tools"],
                    .variables = item["variables"],
                    .add_generation_prompt = item["add_generation_prompt"].get<bool>()});
  if (!rendered.ok()) return false;
  return rendered->text;
}

int Run(const char* path) {
  std::ifstream file(path);
  const OrderedJson root = OrderedJson::parse(file);
  absl::Time now;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%dT%H:%M:%S", root["now"].get<std::string>(), absl::LocalTimeZone(), &now, &error)) {
    std::cerr << error << "\n";
    return 1;
  }
  int num_different = 0;
  for (const OrderedJson& item : root["cases"]) {
    const OrderedJson got = Render(item, now);
    if (got == item["expected"]) continue;
    ++num_different;
    std::cerr << item["name"] << " with " << item["messages"] << " and " << item["variables"] << "\nexpected "
              << item["expected"] << "\ngot      " << got << "\n";
  }
  std::cout << root["cases"].size() << " conversations, " << num_different << " differ\n";
  return num_different == 0 && !root["cases"].empty() ? 0 : 1;
}

}  // namespace
}  // namespace foretoken::chat

int main(int argc, char** argv) { return argc == 2 ? foretoken::chat::Run(argv[1]) : 2; }
