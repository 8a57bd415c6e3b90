// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files of small random models, one of each family, and what we make of them, for a comparison with
// llama.cpp.
//
//   dump_families OUT_FOLDER
//
// writes OUT_FOLDER/NAME.gguf and OUT_FOLDER/NAME.json: {"tokens": [...], "logits": [[...], ...]}, a row for a token.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/gguf_families.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken {
namespace {

void Dump(const testing::GgufFamily& family, const std::string& folder) {
  const testing::GgufFamilyDirectory directory(family);
  const std::string path = folder + "/" + family.model;
  std::ofstream(path + ".gguf", std::ios::binary) << testing::GgufTwin(directory.path()).Bytes();
  testing::LoadedModel loaded = testing::LoadModel(path + ".gguf");
  const std::vector<int32_t> tokens = testing::RandomTokens(24, 300, 7);
  const auto logits = testing::DecodeChain(loaded, {.tokens = tokens, .block_table = testing::Iota(0, 8)});
  std::ofstream(path + ".json") << nlohmann::json{{"tokens", tokens}, {"logits", logits}};
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "dump_families OUT_FOLDER\n";
    return 2;
  }
  for (auto family : foretoken::testing::GgufFamilies()) {
    // llama.cpp rounds the bounds of YaRN, which gpt-oss's published configuration does not. A factor of 1 needs none.
    if (family.model == "gpt-oss") {
      family.changes["rope_parameters"] = {{"rope_type", "yarn"},
                                           {"factor", 1.0},
                                           {"rope_theta", 10000.0},
                                           {"original_max_position_embeddings", 256},
                                           {"truncate", false}};
    }
    foretoken::Dump(family, argv[1]);
  }
}
