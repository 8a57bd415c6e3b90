// SPDX-License-Identifier: Apache-2.0
// Reads the input as a GGUF file. The tensors of an accepted file lie inside the file. Then a server's start reads it:
// the files of a Hugging Face checkpoint that its header stands for, the tokenizer, and all weights of the model.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/gguf/gguf_file.h"
#include "common/gguf/model_files.h"
#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/check.h"
#include "kernels/make_backend.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

bool IsRead(const absl::Status& status) {
  FT_CHECK(status.ok() || (!status.message().empty() && (absl::IsInvalidArgument(status) || absl::IsNotFound(status))));
  return status.ok();
}

void ReadModel(const std::string& path) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    IsRead(gguf::ReadModelFile(path, name).status());
  }
  IsRead(tokenizer::Tokenizer::Load(path).status());
  const absl::StatusOr<model::ModelConfig> config = model::LoadModelConfig(path);
  const absl::StatusOr<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(path);
  if (!IsRead(config.status()) || !IsRead(checkpoint.status())) return;
  static const std::unique_ptr<kernels::Backend> backend = kernels::MakeBackend({.num_threads = 1}).backend;
  model::WeightReader reader({});
  IsRead(model::LoadWeights(*config, *checkpoint, *backend, reader).status());
}

}  // namespace
}  // namespace foretoken

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  static const testing::TempDir directory;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto content = gguf::ReadGguf(file, "input");
  if (!IsRead(content.status())) return 0;
  for (const auto& [name, tensor] : content->tensors) {
    FT_CHECK(tensor.bytes.data() >= file.data());
    FT_CHECK(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  }
  ReadModel(directory.Write("input.gguf", std::string(reinterpret_cast<const char*>(data), size)));
  return 0;
}
