// SPDX-License-Identifier: Apache-2.0
// The keys and values of a GGUF file, by name and type. Values stay in the file until they are asked for.
//
//   FT_ASSIGN_OR_RETURN(const int64_t width, metadata.Required<int64_t>("llama.embedding_length"));
//   FT_ASSIGN_OR_RETURN(const auto theta, metadata.Optional<double>("llama.rope.freq_base"));
//   FT_ASSIGN_OR_RETURN(const auto tokens, metadata.RequiredList<std::string>("tokenizer.ggml.tokens"));
//
// T is bool, int64_t, double (finite) or std::string (well-formed UTF-8). A number may have any width in the file. A
// 32-bit float reads as the shortest decimal number that rounds to it: 1e-5 is 0.00001, as in config.json. A list of
// more than 2^24 elements is refused before one of them is read.
// Errors: INVALID_ARGUMENT with the file, the key, the expected and the given value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/gguf/byte_cursor.h"

namespace foretoken::gguf {

// As numbered in the file.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kList = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct Value {
  ValueType type = ValueType::kU8;  // of a list: of its elements
  std::optional<uint64_t> count;    // the elements of a list; unset: no list
  std::span<const std::byte> bytes;
};

class Metadata {
 public:
  explicit Metadata(std::string path) : path_(std::move(path)) {}

  // Reads the next key and value, as views into the file.
  absl::Status ReadNext(ByteCursor& cursor);

  bool Has(absl::string_view key) const { return values_.contains(key); }

  template <typename T>
  absl::StatusOr<std::optional<T>> Optional(absl::string_view key) const;
  template <typename T>
  absl::StatusOr<std::optional<std::vector<T>>> OptionalList(absl::string_view key) const;

  template <typename T>
  absl::StatusOr<T> OrDefault(absl::string_view key, T default_value) const {
    absl::StatusOr<std::optional<T>> value = Optional<T>(key);
    if (!value.ok()) return value.status();
    return std::move(*value).value_or(std::move(default_value));
  }
  template <typename T>
  absl::StatusOr<T> Required(absl::string_view key) const {
    return Present(key, Optional<T>(key));
  }
  template <typename T>
  absl::StatusOr<std::vector<T>> RequiredList(absl::string_view key) const {
    return Present(key, OptionalList<T>(key));
  }
  // The number of a list's elements, without a look at them.
  absl::StatusOr<int64_t> RequiredListSize(absl::string_view key) const;

  // INVALID_ARGUMENT "<file>: <key>: <problem>".
  template <typename... Parts>
  absl::Status Error(absl::string_view key, const Parts&... problem) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", key, ": ", problem...));
  }

 private:
  absl::StatusOr<const Value*> FindList(absl::string_view key) const;  // null: there is none
  template <typename T>
  absl::StatusOr<T> Present(absl::string_view key, absl::StatusOr<std::optional<T>> value) const {
    if (!value.ok()) return value.status();
    if (!value->has_value()) return Error(key, "is missing");
    return **std::move(value);
  }

  std::string path_;
  absl::flat_hash_map<std::string, Value> values_;
};

}  // namespace foretoken::gguf
