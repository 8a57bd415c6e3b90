// SPDX-License-Identifier: Apache-2.0
#include "common/chat/jinja_values.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"

namespace foretoken::chat {
namespace {

using nlohmann::ordered_json;

bool IsPlainWord(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
}

jinja::value Number(const ordered_json& json) {
  const bool is_large = json.is_number_unsigned() && json.get<uint64_t>() > std::numeric_limits<int64_t>::max();
  if (json.is_number_integer() && !is_large) return jinja::mk_val<jinja::value_int>(json.get<int64_t>());
  return jinja::mk_val<jinja::value_float>(json.get<double>());
}

jinja::value UserText(const std::string& text) {
  return jinja::mk_val<jinja::value_string>(jinja::string(text, /*user_input=*/true));
}

}  // namespace

jinja::value TemplateText(const std::string& text) {
  return jinja::mk_val<jinja::value_string>(jinja::string(text, /*user_input=*/false));
}

jinja::value UserValue(const ordered_json& json) {
  if (json.is_null()) return jinja::mk_val<jinja::value_none>();
  if (json.is_boolean()) return jinja::mk_val<jinja::value_bool>(json.get<bool>());
  if (json.is_number()) return Number(json);
  if (json.is_string()) return UserText(json.get_ref<const std::string&>());
  if (json.is_array()) {
    auto list = jinja::mk_val<jinja::value_array>();
    for (const ordered_json& element : json) list->push_back(UserValue(element));
    return list;
  }
  auto object = jinja::mk_val<jinja::value_object>();
  for (const auto& [key, value] : json.items()) object->insert(UserText(key), UserValue(value));
  return object;
}

jinja::value Messages(const ordered_json& messages) {
  auto list = jinja::mk_val<jinja::value_array>();
  for (const ordered_json& message : messages) {
    jinja::value object = UserValue(message);
    const auto role = message.find("role");
    if (role != message.end() && role->is_string() && IsPlainWord(role->get_ref<const std::string&>())) {
      object->insert(UserText("role"), TemplateText(role->get<std::string>()));
    }
    list->push_back(object);
  }
  return list;
}

}  // namespace foretoken::chat
