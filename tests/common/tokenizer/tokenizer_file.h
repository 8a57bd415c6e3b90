// SPDX-License-Identifier: Apache-2.0
// A directory with a changed copy of one of the small tokenizers in tests/cases/tokenizer, for the life of the object.
//
//   TokenizerFile file("qwen2", {{"model", {{"type", "Unigram"}}}});   // RFC 7386 merge patch: null removes
//   Tokenizer::Load(file.directory())
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"

namespace foretoken::tokenizer {

class TokenizerFile {
 public:
  explicit TokenizerFile(const std::string& style, const nlohmann::json& patch = nlohmann::json::object()) {
    std::ifstream in(testing::SourcePath("tests/cases/tokenizer/" + style + "/tokenizer.json"));
    nlohmann::json content = nlohmann::json::parse(in);
    content.merge_patch(patch);
    Write("tokenizer.json", content.dump());
  }
  TokenizerFile(const TokenizerFile&) = delete;
  TokenizerFile& operator=(const TokenizerFile&) = delete;
  ~TokenizerFile() { std::filesystem::remove_all(directory_); }

  const std::string& directory() const { return directory_; }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << content;
  }

 private:
  static std::string MakeDirectory() {
    std::string name = ::testing::TempDir() + "/tokenizer_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }

  std::string directory_ = MakeDirectory();
};

}  // namespace foretoken::tokenizer
