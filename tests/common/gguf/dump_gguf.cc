// SPDX-License-Identifier: Apache-2.0
// Prints what we read of a GGUF file, for a comparison with other readers.
//
//   dump_gguf FILE.gguf OUT_FOLDER < texts.jsonl
//
// For every matrix NAME of Hugging Face's it writes OUT_FOLDER/NAME, the values as f32. For every line of the input, a
// JSON string, it prints a JSON list of ids; no line needs a tokenizer.
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/quantization/find_weight.h"
#include "common/tokenizer/tokenizer.h"
#include "common/weights/checkpoint.h"
#include "nlohmann/json.hpp"

namespace foretoken {
namespace {

std::vector<float> ValuesOf(const quantization::FoundWeight& weight, const kernels::Shape& shape) {
  std::vector<float> values(shape.num_elements());
  if (weight.stored != nullptr) {
    weight.stored->ReadValues(0, shape[0], values.data());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = weight.floats.dtype == kernels::DType::kF32   ? weight.floats.as<float>()[i]
                : weight.floats.dtype == kernels::DType::kF16 ? kernels::FloatFromF16(weight.floats.as<uint16_t>()[i])
                                                              : kernels::FloatFromBf16(weight.floats.as<uint16_t>()[i]);
  }
  return values;
}

int Dump(const std::string& path, const std::string& folder) {
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(path).value();
  for (const std::string& name : checkpoint.Names()) {
    const std::vector<int64_t>& dims = checkpoint.FindStored(name)->shape;
    if (dims.size() != 2) continue;
    const kernels::Shape shape(dims[0], dims[1]);
    const std::vector<float> values = ValuesOf(quantization::FindWeight(checkpoint, name, shape, {}).value(), shape);
    std::ofstream(folder + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  std::optional<tokenizer::Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    if (!tokenizer) tokenizer = tokenizer::Tokenizer::Load(path).value();
    const std::string text = nlohmann::json::parse(line);
    std::cout << nlohmann::json(tokenizer->Encode(text, {.parse_special = true}).value()).dump() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "dump_gguf FILE.gguf OUT_FOLDER < texts.jsonl\n";
    return 2;
  }
  return foretoken::Dump(argv[1], argv[2]);
}
