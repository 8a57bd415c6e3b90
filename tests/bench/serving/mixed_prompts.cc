// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/mixed_prompts.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace foretoken::bench {
namespace {

using Names = std::array<const char*, 4>;
constexpr Names kNames[] = {
    {"alpha", "beta", "gamma", "delta"},   {"user", "group", "owner", "role"},    {"host", "port", "path", "query"},
    {"width", "height", "depth", "scale"}, {"title", "author", "body", "footer"}, {"start", "stop", "step", "count"},
    {"left", "right", "value", "parent"},  {"name", "kind", "label", "color"},
};

const Names& NamesOf(int variant) { return kNames[static_cast<size_t>(variant) % std::size(kNames)]; }

}  // namespace

std::string RepetitivePrompt(int variant) {
  std::string text = absl::StrCat("class Config", variant, ":\n    def __init__(self):\n");
  for (const char* name : NamesOf(variant)) absl::StrAppend(&text, "        self.", name, " = None\n");
  for (const char* name : NamesOf(variant)) {
    absl::StrAppend(&text, "\n    def get_", name, "(self):\n        return self.", name, "\n");
  }
  return absl::StrCat(text, "\n    def set_", NamesOf(variant)[0], "(self, value):\n");
}

std::string EditedFilePrompt(absl::string_view head, absl::string_view body) {
  return absl::StrCat(head, body, "\n\n\n# Copyright (c) 2001 the authors\n", head);
}

std::vector<std::string> MixedPrompts(std::span<const std::string> fresh, std::span<const std::string> edited) {
  std::vector<std::string> prompts;
  for (size_t i = 0; i < std::min(fresh.size(), edited.size()); ++i) {
    prompts.push_back(fresh[i]);
    prompts.push_back(RepetitivePrompt(static_cast<int>(i)));
    prompts.push_back(edited[i]);
  }
  return prompts;
}

}  // namespace foretoken::bench
