// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/mixed_prompts.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace foretoken::bench {
namespace {

using Names = std::array<const char*, 4>;
constexpr Names kNames[] = {
    {"alpha", "beta", "gamma", "delta"},   {"user", "group", "owner", "role"},    {"host", "port", "path", "query"},
    {"width", "height", "depth", "scale"}, {"title", "author", "body", "footer"}, {"start", "stop", "step", "count"},
    {"left", "right", "value", "parent"},  {"name", "kind", "label", "color"},
};

const Names& NamesOf(int variant) { return kNames[static_cast<size_t>(variant) % std::size(kNames)]; }

constexpr char kFile[] = R"(import json
import os
import time

DEFAULT_TIMEOUT = 30


class $0Store:
    """Keeps every $0 in a file below one directory."""

    def __init__(self, directory, timeout=DEFAULT_TIMEOUT):
        self.directory = directory
        self.timeout = timeout
        self._loaded = {}

    def path_of(self, key):
        return os.path.join(self.directory, "%s.json" % key)

    def load(self, key):
        if key in self._loaded:
            return self._loaded[key]
        with open(self.path_of(key)) as stream:
            $0 = json.load(stream)
        self._loaded[key] = $0
        return $0

    def save(self, key, $0):
        temporary = self.path_of(key) + ".tmp"
        with open(temporary, "w") as stream:
            json.dump($0, stream, indent=2, sort_keys=True)
        os.rename(temporary, self.path_of(key))
        self._loaded[key] = $0

    def wait_for(self, key, $1=0.1):
        deadline = time.time() + self.timeout
        while not os.path.exists(self.path_of(key)):
            if time.time() > deadline:
                raise TimeoutError("no $0 named %r" % key)
            time.sleep($1)
        return self.load(key)
)";

constexpr size_t kBegunBytes = 170;  // of the last copy

}  // namespace

std::string RepetitivePrompt(int variant) {
  std::string text = absl::StrCat("class Config", variant, ":\n    def __init__(self):\n");
  for (const char* name : NamesOf(variant)) absl::StrAppend(&text, "        self.", name, " = None\n");
  for (const char* name : NamesOf(variant)) {
    absl::StrAppend(&text, "\n    def get_", name, "(self):\n        return self.", name, "\n");
  }
  return absl::StrCat(text, "\n    def set_", NamesOf(variant)[0], "(self, value):\n");
}

std::string EditedFilePrompt(int variant) {
  const Names& names = NamesOf(variant);
  const std::string file = absl::StrReplaceAll(kFile, {{"$0", names[0]}, {"$1", names[1]}});
  const std::string edited = absl::StrReplaceAll(file, {{"TIMEOUT = 30", "TIMEOUT = 60"}, {"_loaded", "_cache"}});
  return absl::StrCat(file, "\n\n", edited, "\n\n", edited.substr(0, kBegunBytes + static_cast<size_t>(variant)));
}

std::vector<std::string> MixedPrompts(std::span<const std::string> fresh) {
  std::vector<std::string> prompts;
  for (size_t i = 0; i < fresh.size(); ++i) {
    prompts.push_back(fresh[i]);
    prompts.push_back(RepetitivePrompt(static_cast<int>(i)));
    prompts.push_back(EditedFilePrompt(static_cast<int>(i)));
  }
  return prompts;
}

}  // namespace foretoken::bench
