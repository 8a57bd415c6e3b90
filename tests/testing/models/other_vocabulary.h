// SPDX-License-Identifier: Apache-2.0
// A model with a changed vocabulary: one id stands for another word.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "kernels/check.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

inline constexpr int kOtherWordId = 4093;  // of the demo family

// Copies a model of the demo family to an empty directory and changes its vocabulary.
inline void WriteModelOfAnotherVocabulary(const std::string& model, const TempDir& directory) {
  directory.CopyFrom(model);
  std::string text;
  {
    std::ifstream file(directory.path() + "/tokenizer.json");
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string word = "<|im_start|>";
  const size_t begin = text.find(word);
  FT_CHECK(begin != std::string::npos);
  directory.Write("tokenizer.json", text.replace(begin, word.size(), "<|im_begin|>"));
}

}  // namespace foretoken::testing
