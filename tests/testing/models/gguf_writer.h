// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files for tests, valid or not.
//
//   GgufWriter writer;
//   writer.Add("general.architecture", std::string("llama"));
//   writer.AddTensor({.name = "output_norm.weight", .type = 0, .shape = {2}, .bytes = eight_bytes});
//   dir.Write("model.gguf", writer.Bytes());
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::testing {

struct GgufWriterTensor {
  std::string name;
  uint32_t type = 0;           // the format's number; 0 is F32
  std::vector<int64_t> shape;  // row-major
  std::string bytes;
  std::optional<uint64_t> offset = std::nullopt;  // unset: behind the tensor before, aligned
};

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;              // of the data; as general.alignment only if a test adds that key
  std::optional<uint64_t> num_keys;     // unset: the true number
  std::optional<uint64_t> num_tensors;  // unset: the true number

  void Add(std::string_view key, uint32_t value) { Key(key, 4), Raw(keys_, value); }
  void Add(std::string_view key, uint64_t value) { Key(key, 10), Raw(keys_, value); }
  void Add(std::string_view key, int32_t value) { Key(key, 5), Raw(keys_, value); }
  void Add(std::string_view key, float value) { Key(key, 6), Raw(keys_, value); }
  void Add(std::string_view key, bool value) { Key(key, 7), Raw(keys_, static_cast<uint8_t>(value)); }
  void Add(std::string_view key, const std::string& value) { Key(key, 8), String(keys_, value); }
  void Add(std::string_view key, const std::vector<int32_t>& list) { List(key, 5, list); }
  void Add(std::string_view key, const std::vector<float>& list) { List(key, 6, list); }
  void Add(std::string_view key, const std::vector<std::string>& list) {
    List(key, 8, std::vector<char>());
    std::memcpy(keys_.data() + keys_.size() - 8, BytesOf(uint64_t{list.size()}).data(), 8);
    for (const std::string& element : list) String(keys_, element);
  }
  // A key with a value of any type and bytes.
  void AddRaw(std::string_view key, uint32_t type, std::string_view bytes) { Key(key, type), keys_ += bytes; }

  void AddTensor(GgufWriterTensor tensor) { tensors_.push_back(std::move(tensor)); }

  std::string Bytes() const {
    std::string file = "GGUF";
    Raw(file, version);
    Raw(file, num_tensors.value_or(tensors_.size()));
    Raw(file, num_keys.value_or(num_keys_));
    file += keys_;
    std::string data;
    for (const GgufWriterTensor& tensor : tensors_) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      String(file, tensor.name);
      Raw(file, static_cast<uint32_t>(tensor.shape.size()));
      for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) Raw(file, static_cast<uint64_t>(*dim));
      Raw(file, tensor.type);
      Raw(file, tensor.offset.value_or(data.size()));
      data += tensor.bytes;
    }
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data;
  }

  // The same in parts of about equally many tensors.
  std::vector<GgufWriter> Split(int num_parts) const {
    std::vector<GgufWriter> parts(static_cast<size_t>(num_parts));
    parts[0] = *this;
    parts[0].tensors_.clear();
    for (size_t i = 0; i < tensors_.size(); ++i) parts[i * parts.size() / tensors_.size()].AddTensor(tensors_[i]);
    for (size_t part = 0; part < parts.size(); ++part) {
      parts[part].Add("split.no", static_cast<uint32_t>(part));
      parts[part].Add("split.count", static_cast<uint32_t>(num_parts));
      parts[part].Add("split.tensors.count", static_cast<int32_t>(tensors_.size()));
    }
    return parts;
  }

  template <typename T>
  static std::string BytesOf(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }

 private:
  template <typename T>
  static void Raw(std::string& out, const T& value) {
    out += BytesOf(value);
  }
  static void String(std::string& out, std::string_view text) {
    Raw(out, uint64_t{text.size()});
    out += text;
  }
  void Key(std::string_view key, uint32_t type) {
    String(keys_, key);
    Raw(keys_, type);
    ++num_keys_;
  }
  template <typename T>
  void List(std::string_view key, uint32_t type, const std::vector<T>& list) {
    Key(key, 9);
    Raw(keys_, type);
    Raw(keys_, uint64_t{list.size()});
    for (const T& element : list) Raw(keys_, element);
  }

  std::string keys_;
  uint64_t num_keys_ = 0;
  std::vector<GgufWriterTensor> tensors_;
};

}  // namespace foretoken::testing
