// SPDX-License-Identifier: Apache-2.0
#include "client/offline/quantize_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/offline/offline_engine.h"
#include "client/offline/output_folder.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_model.h"
#include "common/model/checkpoint_fit.h"
#include "common/model/config/config.h"
#include "common/model/weight_names.h"
#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"
#include "common/weights/safetensors_writer.h"
#include "kernels/dtype.h"
#include "kernels/quantize.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

namespace fs = std::filesystem;
using weights::SafetensorsWriter;
using weights::TensorHeader;
using Json = nlohmann::ordered_json;

constexpr int64_t kRowsAtOnce = 64;

// What becomes of one tensor of the input, or of one matrix that is written in another form.
struct Item {
  std::string name;  // of a tensor; of a matrix without its ".weight"
  const weights::StoredTensor* copied = nullptr;
  quantization::FoundWeight matrix;       // where nothing is copied
  int64_t num_rows = 0, num_columns = 0;  // of the matrix
  int bits = 0;                           // of the integers; 0: bf16
  std::vector<TensorHeader> headers;      // of the tensors to write

  int64_t num_bytes() const {
    int64_t total = 0;
    for (const TensorHeader& header : headers) total += static_cast<int64_t>(header.num_bytes);
    return total;
  }
};

void ReadFloats(const kernels::ConstTensorView& floats, int64_t first, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    switch (floats.dtype) {
      case kernels::DType::kBF16:
        values[i] = kernels::FloatFromBf16(static_cast<const uint16_t*>(floats.data)[first + i]);
        break;
      case kernels::DType::kF16:
        values[i] = kernels::FloatFromF16(static_cast<const uint16_t*>(floats.data)[first + i]);
        break;
      default:
        values[i] = static_cast<const float*>(floats.data)[first + i];
    }
  }
}

// Codes of a row as pack-quantized stores them: 8 bits each, or two in a byte, the first in its low half.
void AppendCodes(std::span<const uint8_t> codes, int bits, std::vector<std::byte>& bytes) {
  for (size_t i = 0; i < codes.size(); i += bits == 4 ? 2 : 1) {
    bytes.push_back(static_cast<std::byte>(bits == 4 ? codes[i] | codes[i + 1] << 4 : codes[i]));
  }
}

// Some rows of the matrix, each value rounded to bf16, as a server does before it makes integers.
std::vector<uint16_t> ReadRows(const Item& item, int64_t first, int64_t num_rows) {
  std::vector<float> values(num_rows * item.num_columns);
  if (item.matrix.stored != nullptr) {
    item.matrix.stored->ReadValues(first, num_rows, values.data());
  } else {
    ReadFloats(item.matrix.floats, first * item.num_columns, num_rows * item.num_columns, values.data());
  }
  std::vector<uint16_t> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), kernels::Bf16FromFloat);
  return rounded;
}

// Rounds a row to integers. Appends its codes and scales.
absl::Status QuantizeRow(const Item& item, std::span<const uint16_t> row, int64_t group_size,
                         std::vector<std::byte>& packed, std::vector<uint16_t>& scales) {
  std::vector<float> values(row.size());
  std::ranges::transform(row, values.begin(), kernels::FloatFromBf16);
  std::vector<uint8_t> codes(row.size());
  for (size_t at = 0; at < row.size(); at += static_cast<size_t>(group_size)) {
    const float scale = kernels::QuantizeGroup(values.data() + at, group_size, item.bits, codes.data() + at);
    if (std::isnan(scale)) {
      return absl::InvalidArgumentError(
          absl::StrCat(item.name, ".weight: expected values that bf16 holds, got one that is not finite there"));
    }
    scales.push_back(kernels::Bf16FromFloat(scale));
  }
  AppendCodes(codes, item.bits, packed);
  return absl::OkStatus();
}

absl::Status WriteMatrix(const Item& item, int64_t group_size, SafetensorsWriter& file) {
  std::vector<uint16_t> scales;
  for (int64_t first = 0; first < item.num_rows; first += kRowsAtOnce) {
    const std::vector<uint16_t> rows = ReadRows(item, first, std::min(kRowsAtOnce, item.num_rows - first));
    if (item.bits == 0) {
      FT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(rows))));
      continue;
    }
    std::vector<std::byte> packed;
    for (auto rest = std::span(rows); !rest.empty(); rest = rest.subspan(item.num_columns)) {
      FT_RETURN_IF_ERROR(QuantizeRow(item, rest.first(item.num_columns), group_size, packed, scales));
    }
    FT_RETURN_IF_ERROR(file.Append(packed));
  }
  if (item.bits != 0) {
    FT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(scales))));
    const int64_t shape[] = {item.num_rows, item.num_columns};
    FT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(shape))));
  }
  for (const quantization::NamedTensor& named : item.matrix.tensors) {
    weights::ReleasePages(named.tensor->bytes.data(), named.tensor->bytes.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<Item> MatrixItem(const weights::Checkpoint& checkpoint, const model::WeightName& weight,
                                const model::ModelConfig& config, int bits, int64_t group_size) {
  const int64_t num_rows = weight.shape[0], num_columns = weight.shape[1];
  if (bits != 0 && num_columns % group_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint.directory(), ": ", weight.name,
                                                   ": --group_size: expected a divisor of its ", num_columns,
                                                   " inputs, got ", group_size));
  }
  Item item = {.name = weight.name.substr(0, weight.name.rfind(".weight")),
               .num_rows = num_rows,
               .num_columns = num_columns,
               .bits = bits};
  FT_ASSIGN_OR_RETURN(item.matrix,
                      quantization::FindWeight(checkpoint, weight.name, weight.shape, config.quantization));
  const auto num_codes = static_cast<size_t>(num_rows * num_columns);
  if (bits == 0) {
    item.headers = {{weight.name, "BF16", {num_rows, num_columns}, num_codes * sizeof(uint16_t)}};
    return item;
  }
  const int64_t num_groups = num_columns / group_size;
  item.headers = {
      {item.name + ".weight_packed", "I32", {num_rows, num_columns * bits / 32}, num_codes * bits / 8},
      {item.name + ".weight_scale", "BF16", {num_rows, num_groups}, sizeof(uint16_t) * num_rows * num_groups},
      {item.name + ".weight_shape", "I64", {2}, 2 * sizeof(int64_t)}};
  return item;
}

// Whether the matrix is read alike where its tensors stand in the new checkpoint, which has a declaration of its own.
bool KeepsItsMeaning(const weights::Checkpoint& checkpoint, const model::WeightName& weight,
                     const quantization::FoundWeight& found, const QuantizeOptions& options) {
  if (found.stored == nullptr) return true;
  const quantization::QuantizationConfig declared = {
      .is_declared = true, .bits = {options.bits}, .group_sizes = {options.group_size}};
  const auto again = quantization::FindWeight(checkpoint, weight.name, weight.shape, declared);
  return again.ok() && again->format == found.format;
}

// The matrices of the layers, and the head if it is asked for. Then the embedding, the head and the routers as bf16, if
// they are quantised and would be read in another way. Then every tensor that none of these reads.
absl::StatusOr<std::vector<Item>> ItemsOf(const weights::Checkpoint& checkpoint, const model::ModelConfig& config,
                                          const QuantizeOptions& options) {
  const model::ModelWeightNames names = model::NameWeights(config);
  std::vector<std::pair<model::WeightName, int>> matrices;
  for (const model::LayerWeightNames& layer : names.layers) {
    for (model::WeightName& weight : model::ListMatrices(layer)) matrices.emplace_back(std::move(weight), options.bits);
  }
  if (options.head_bits != 0) matrices.emplace_back(names.head, options.head_bits);
  std::vector<model::WeightName> kept = {names.embed, names.head};
  for (const model::LayerWeightNames& layer : names.layers) {
    if (layer.router) kept.push_back(*layer.router);
  }
  for (const model::WeightName& weight : kept) {
    const auto has_its_name = [&](const auto& matrix) { return matrix.first.name == weight.name; };
    if (std::ranges::none_of(matrices, has_its_name)) matrices.emplace_back(weight, 0);
  }
  std::vector<Item> items;
  std::set<std::string> replaced;
  for (const auto& [weight, bits] : matrices) {
    FT_ASSIGN_OR_RETURN(Item item, MatrixItem(checkpoint, weight, config, bits, options.group_size));
    if (bits == 0 && KeepsItsMeaning(checkpoint, weight, item.matrix, options)) continue;
    for (const quantization::NamedTensor& named : item.matrix.tensors) replaced.insert(named.name);
    items.push_back(std::move(item));
  }
  for (const std::string& name : checkpoint.Names()) {
    if (replaced.contains(name)) continue;
    const weights::StoredTensor& tensor = *checkpoint.FindStored(name);
    items.push_back({.name = name, .copied = &tensor});
    items.back().headers = {{name, tensor.dtype, tensor.shape, tensor.bytes.size()}};
  }
  return items;
}

// Consecutive items for each file.
std::vector<std::span<const Item>> Files(std::span<const Item> items, int64_t max_file_bytes) {
  std::vector<std::span<const Item>> files;
  size_t begin = 0;
  int64_t num_bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > begin && num_bytes + items[i].num_bytes() > max_file_bytes) {
      files.push_back(items.subspan(begin, i - begin));
      begin = i;
      num_bytes = 0;
    }
    num_bytes += items[i].num_bytes();
  }
  files.push_back(items.subspan(begin));
  return files;
}

Json Group(const char* target, int bits, int64_t group_size) {
  return {{"targets", {target}},
          {"weights",
           {{"num_bits", bits},
            {"type", "int"},
            {"symmetric", true},
            {"strategy", "group"},
            {"group_size", group_size},
            {"dynamic", false}}},
          {"input_activations", nullptr},
          {"output_activations", nullptr}};
}

// Readers that go by the declaration take every matrix for quantised that it does not name: a router, or the vision
// part of a multimodal model.
Json QuantizationConfigOf(const QuantizeOptions& options, std::span<const Item> items) {
  Json groups = {{"group_0", Group("Linear", options.bits, options.group_size)}};
  std::set<std::string> ignored;
  if (options.head_bits == 0) ignored.insert("lm_head");
  for (const Item& item : items) {
    absl::string_view name = item.name;
    const bool is_matrix = item.copied != nullptr && item.copied->shape.size() == 2;
    if (item.copied == nullptr && item.bits == 0) ignored.emplace(name);
    if (is_matrix && absl::ConsumeSuffix(&name, ".weight")) ignored.emplace(name);
  }
  if (options.head_bits != 0 && options.head_bits != options.bits) {
    groups["group_1"] = Group("re:.*lm_head", options.head_bits, options.group_size);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr}};
}

// The names of a folder's files, and of links to files.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unseen;
    const fs::file_type type = entry->status(unseen).type();
    if (type == fs::file_type::none) {
      return absl::ErrnoToStatus(unseen.value(), absl::StrCat("cannot look at ", entry->path().string()));
    }
    if (type == fs::file_type::regular) names.push_back(entry->path().filename().string());
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  return names;
}

bool HoldsWeights(const std::string& name) {
  static const std::set<std::string> kExtensions = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5"};
  return kExtensions.contains(fs::path(name).extension()) || name.ends_with(".index.json");
}

// The files to copy, by their names in the input: all that are not written anew, and chat templates. All can be read.
absl::StatusOr<std::vector<std::string>> FindOtherFiles(const std::string& input) {
  static const std::set<std::string> kReplaced = {"config.json", "quantize_config.json", "quant_config.json",
                                                  "quantization_config.json", "hf_quant_config.json"};
  constexpr const char* kTemplates = "additional_chat_templates";
  FT_ASSIGN_OR_RETURN(std::vector<std::string> names, ListFiles(input));
  std::erase_if(names, [](const std::string& name) { return HoldsWeights(name) || kReplaced.contains(name); });
  std::error_code ignored;
  if (fs::is_directory(fs::path(input) / kTemplates, ignored)) {
    FT_ASSIGN_OR_RETURN(const std::vector<std::string> templates, ListFiles(absl::StrCat(input, "/", kTemplates)));
    for (const std::string& name : templates) {
      if (name.ends_with(".jinja")) names.push_back(absl::StrCat(kTemplates, "/", name));
    }
  }
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(input, "/", name);
    if (access(path.c_str(), R_OK) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  return names;
}

// `unties`: the checkpoint has a head of its own, whatever its configuration says.
absl::StatusOr<std::string> MakeConfig(const QuantizeOptions& options, std::span<const Item> items, bool unties) {
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(options.input + "/config.json"));
  FT_ASSIGN_OR_RETURN(Json config, base::ParseOrderedJson(text, options.input + "/config.json"));
  config.erase("compression_config");
  const auto text_config = config.find("text_config");
  if (text_config != config.end() && text_config->is_object()) {
    text_config->erase("quantization_config");
    if (unties && text_config->contains("tie_word_embeddings")) (*text_config)["tie_word_embeddings"] = false;
  }
  if (unties) config["tie_word_embeddings"] = false;
  config["quantization_config"] = QuantizationConfigOf(options, items);
  return config.dump(2) + "\n";
}

std::string FileName(size_t i, size_t num_files) {
  return num_files == 1 ? "model.safetensors" : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, num_files);
}

absl::Status CheckNotCancelled(const QuantizeOptions& options) {
  const bool is_cancelled = options.cancellation != nullptr && options.cancellation->cancelled();
  return is_cancelled ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::StatusOr<QuantizedSize> WriteWeights(const QuantizeOptions& options, std::span<const Item> items,
                                           OutputFolder& output,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  QuantizedSize size;
  int64_t num_bytes = 0;
  for (const Item& item : items) num_bytes += item.num_bytes();
  const std::vector<std::span<const Item>> files = Files(items, options.max_file_bytes);
  std::map<std::string, std::string> file_by_tensor;
  for (size_t i = 0; i < files.size(); ++i) {
    std::vector<TensorHeader> headers;
    for (const Item& item : files[i]) headers.insert(headers.end(), item.headers.begin(), item.headers.end());
    const std::string name = FileName(i, files.size());
    for (const TensorHeader& header : headers) file_by_tensor[header.name] = name;
    FT_ASSIGN_OR_RETURN(SafetensorsWriter file, SafetensorsWriter::Create(output.Add(name), headers));
    for (const Item& item : files[i]) {
      FT_RETURN_IF_ERROR(CheckNotCancelled(options));
      FT_RETURN_IF_ERROR(item.copied != nullptr ? file.Append(item.copied->bytes)
                                                : WriteMatrix(item, options.group_size, file));
      size.num_matrices += item.bits != 0 ? 1 : 0;
      size.num_bytes_after += item.num_bytes();
      progress(size.num_bytes_after, num_bytes);
    }
    FT_RETURN_IF_ERROR(file.Finish());
  }
  if (files.size() == 1) return size;
  const Json index = {{"metadata", {{"total_size", num_bytes}}}, {"weight_map", file_by_tensor}};
  FT_RETURN_IF_ERROR(output.Write("model.safetensors.index.json", index.dump(2) + "\n"));
  return size;
}

}  // namespace

absl::StatusOr<QuantizedSize> QuantizeCheckpoint(const QuantizeOptions& options,
                                                 const std::function<void(int64_t, int64_t)>& progress) {
  if (gguf::IsGgufPath(options.input)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.input, ": expected the directory of a checkpoint in safetensors, got a GGUF file; ",
                     "a server quantises one at load, with --weight_quantization"));
  }
  FT_ASSIGN_OR_RETURN(model::ModelConfig config, model::LoadModelConfig(options.input));
  FT_ASSIGN_OR_RETURN(const weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.input));
  const bool was_tied = config.tie_word_embeddings;
  FT_ASSIGN_OR_RETURN(const std::vector<std::string> notes, model::FitToCheckpoint(checkpoint, config));
  PrintNotes(notes);
  if (options.head_bits != 0 && config.tie_word_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.input, ": --head_bits: its head is its embedding, which such checkpoints keep as it is; ",
                     "--head_quantization of a server quantises it at load"));
  }
  FT_ASSIGN_OR_RETURN(const std::vector<Item> items, ItemsOf(checkpoint, config, options));
  // Writing the weights takes long, so faults of all other files are found before.
  FT_ASSIGN_OR_RETURN(const auto other_files, FindOtherFiles(options.input));
  FT_ASSIGN_OR_RETURN(const std::string new_config,
                      MakeConfig(options, items, was_tied && !config.tie_word_embeddings));
  FT_ASSIGN_OR_RETURN(OutputFolder output, OutputFolder::Make(options.output));
  FT_ASSIGN_OR_RETURN(QuantizedSize size, WriteWeights(options, items, output, progress));
  size.num_bytes_before = static_cast<int64_t>(checkpoint.num_bytes());
  for (const std::string& name : other_files) {
    FT_RETURN_IF_ERROR(output.Copy(name, absl::StrCat(options.input, "/", name)));
  }
  FT_RETURN_IF_ERROR(CheckNotCancelled(options));
  FT_RETURN_IF_ERROR(output.Finish("config.json", new_config));
  return size;
}

}  // namespace foretoken::client
