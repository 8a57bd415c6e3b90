// SPDX-License-Identifier: Apache-2.0
#include "common/weights/safetensors_writer.h"

#include "common/base/status_macros.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"

namespace foretoken::weights {

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            std::span<const TensorHeader> tensors) {
  // Other readers ask for this key before they load a file.
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t begin = 0;
  for (const TensorHeader& tensor : tensors) {
    const size_t end = begin + tensor.num_bytes;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  FT_ASSIGN_OR_RETURN(base::OutputFile file, base::OutputFile::Create(path));
  FT_RETURN_IF_ERROR(file.Append({reinterpret_cast<const char*>(&length), sizeof(length)}));
  FT_RETURN_IF_ERROR(file.Append(text));
  return SafetensorsWriter(std::move(file), begin);
}

absl::Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  FT_CHECK(bytes.size() <= num_missing_bytes_);
  num_missing_bytes_ -= bytes.size();
  return file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status SafetensorsWriter::Finish() {
  FT_CHECK(num_missing_bytes_ == 0);
  return file_.Finish();
}

}  // namespace foretoken::weights
