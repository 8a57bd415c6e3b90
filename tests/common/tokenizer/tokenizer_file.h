// SPDX-License-Identifier: Apache-2.0
// A directory with a changed copy of a small tokenizer in tests/cases/tokenizer. It lives as long as the object.
//
//   TokenizerFile file("qwen2", {{"model", {{"type", "Unigram"}}}});   // RFC 7386 merge patch: null removes
//   Tokenizer::Load(file.directory())
#pragma once

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::tokenizer {

class TokenizerFile {
 public:
  explicit TokenizerFile(const std::string& style, const nlohmann::json& patch = nlohmann::json::object()) {
    std::ifstream in(testing::SourcePath("tests/cases/tokenizer/" + style + "/tokenizer.json"));
    nlohmann::json content = nlohmann::json::parse(in);
    content.merge_patch(patch);
    Write("tokenizer.json", content.dump());
  }

  const std::string& directory() const { return directory_.path(); }
  void Write(const std::string& name, const std::string& content) const { directory_.Write(name, content); }

 private:
  testing::TempDir directory_;
};

}  // namespace foretoken::tokenizer
