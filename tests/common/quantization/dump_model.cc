// SPDX-License-Identifier: Apache-2.0
// Prints what we read of a GGUF file or of a checkpoint's directory, for a comparison with other readers.
//
//   dump_model PATH OUT_FOLDER < lines.jsonl
//
// Of a GGUF file it writes every matrix NAME of Hugging Face's to OUT_FOLDER/NAME, the values as f32. Of a directory it
// writes those that lines ["NAME", rows, columns] name. For every other line, a JSON string, it prints a JSON list of
// ids; no line needs a tokenizer.
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json_fields.h"
#include "common/base/mapped_file.h"
#include "common/gguf/gguf_model.h"
#include "common/quantization/find_weight.h"
#include "common/quantization/quantization_config.h"
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

void WriteMatrix(const weights::Checkpoint& checkpoint, const quantization::QuantizationConfig& config,
                 const std::string& name, const kernels::Shape& shape, const std::string& folder) {
  const std::vector<float> values = ValuesOf(quantization::FindWeight(checkpoint, name, shape, config).value(), shape);
  std::ofstream(folder + "/" + name, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
}

int Dump(const std::string& path, const std::string& folder) {
  const absl::StatusOr<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(path);
  quantization::QuantizationConfig config;
  if (gguf::IsGgufPath(path)) {
    if (!checkpoint.ok()) std::cerr << checkpoint.status() << "\n";  // a tokenizer alone may be of any architecture
    for (const std::string& name : checkpoint.ok() ? checkpoint->Names() : std::vector<std::string>()) {
      const std::vector<int64_t>& dims = checkpoint->FindStored(name)->shape;
      if (dims.size() == 2) WriteMatrix(*checkpoint, config, name, kernels::Shape(dims[0], dims[1]), folder);
    }
  } else {
    const std::string text = base::ReadFile(path + "/config.json").value();
    config = quantization::ReadQuantizationConfig(model::JsonFields::Parse(text, path).value()).value();
  }
  std::optional<tokenizer::Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json item = nlohmann::json::parse(line);
    if (item.is_array()) {
      WriteMatrix(checkpoint.value(), config, item[0], kernels::Shape(item[1].get<int64_t>(), item[2].get<int64_t>()),
                  folder);
      continue;
    }
    if (!tokenizer) tokenizer = tokenizer::Tokenizer::Load(path).value();
    std::cout << nlohmann::json(tokenizer->Encode(item.get<std::string>(), {.parse_special = true}).value()).dump()
              << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "dump_model PATH OUT_FOLDER < lines.jsonl\n";
    return 2;
  }
  return foretoken::Dump(argv[1], argv[2]);
}
