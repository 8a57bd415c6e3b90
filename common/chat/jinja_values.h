// SPDX-License-Identifier: Apache-2.0
// JSON as values of the Jinja engine. Every text is marked as the user's or as the template's; an operation of the
// engine that does not keep the marks makes the user's text of it.
// Errors: the engine's exceptions, where RenderBudget's bounds are passed. The caller catches them.
#pragma once

#include <string>

#include "jinja/value.h"
#include "nlohmann/json.hpp"

namespace foretoken::chat {

// A value in which all texts are the user's.
jinja::value UserValue(const nlohmann::ordered_json& json);
// A text that counts as written by the template.
jinja::value TemplateText(const std::string& text);
// The list of messages: the user's, except that a role of letters, digits, "_" and "-" is the template's.
jinja::value Messages(const nlohmann::ordered_json& messages);

}  // namespace foretoken::chat
