// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/metadata.h"

#include <cmath>
#include <limits>
#include <system_error>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "common/base/shortest_double.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::gguf {
namespace {

constexpr size_t kMaxKeyBytes = 65535;    // the format's own limit
constexpr size_t kMaxShownKeyBytes = 80;  // of a key
// The longest lists have an element for each token, and no configuration may have a larger vocabulary.
constexpr uint64_t kMaxElements = uint64_t{1} << 24;

// Unset for strings and lists, and for numbers that no type has.
std::optional<size_t> SizeOf(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kList:
      break;
  }
  return std::nullopt;
}

const char* Name(ValueType type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",  "i16", "u32", "i32", "f32",
                                           "bool", "string", "list", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

// The bytes of `count` values of a type.
absl::StatusOr<std::span<const std::byte>> ReadValues(ByteCursor& cursor, ValueType type, uint64_t count,
                                                      const std::string& what) {
  if (const std::optional<size_t> size = SizeOf(type)) {
    if (count > cursor.num_left() / *size) count = std::numeric_limits<uint64_t>::max() / *size;  // Bytes refuses it
    return cursor.Bytes(count * *size, what);
  }
  ByteCursor start = cursor;
  for (uint64_t i = 0; i < count; ++i) FT_RETURN_IF_ERROR(cursor.String(what).status());
  return start.Bytes(cursor.position() - start.position(), what);
}

template <typename T>
T Take(ByteCursor& cursor) {
  return *cursor.Number<T>("");  // the bytes were checked when the file was opened
}

template <typename T>
std::optional<T> Integer(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return std::nullopt;
  } else {
    return static_cast<T>(value);
  }
}

// The next value as a T. Unset: it is none.
template <typename T>
std::optional<T> Read(ByteCursor& cursor, ValueType type) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (type != ValueType::kString) return std::nullopt;
    const absl::string_view text = *cursor.String("");
    if (tokenizer::FirstInvalidUtf8(text)) return std::nullopt;
    return std::string(text);
  } else {
    switch (type) {
      case ValueType::kU8:
        return Integer<T>(Take<uint8_t>(cursor));
      case ValueType::kI8:
        return Integer<T>(Take<int8_t>(cursor));
      case ValueType::kU16:
        return Integer<T>(Take<uint16_t>(cursor));
      case ValueType::kI16:
        return Integer<T>(Take<int16_t>(cursor));
      case ValueType::kU32:
        return Integer<T>(Take<uint32_t>(cursor));
      case ValueType::kI32:
        return Integer<T>(Take<int32_t>(cursor));
      case ValueType::kI64:
        return Integer<T>(Take<int64_t>(cursor));
      case ValueType::kU64: {
        const auto value = Take<uint64_t>(cursor);
        if (value > std::numeric_limits<int64_t>::max()) return std::nullopt;
        return Integer<T>(static_cast<int64_t>(value));
      }
      case ValueType::kBool: {
        const auto value = Take<uint8_t>(cursor);
        if (!std::is_same_v<T, bool> || value > 1) return std::nullopt;
        return static_cast<T>(value);
      }
      case ValueType::kF32:
      case ValueType::kF64: {
        const double value = type == ValueType::kF32 ? base::ShortestDouble(Take<float>(cursor)) : Take<double>(cursor);
        if (!std::is_same_v<T, double> || !std::isfinite(value)) return std::nullopt;
        return static_cast<T>(value);
      }
      case ValueType::kString:
      case ValueType::kList:
        break;
    }
    return std::nullopt;
  }
}

template <typename T>
constexpr const char* kExpected = "a number";
template <>
constexpr const char* kExpected<bool> = "true or false";
template <>
constexpr const char* kExpected<int64_t> = "an integer below 2^63";
template <>
constexpr const char* kExpected<std::string> = "UTF-8 text";

// What a value of this type is instead of a T.
template <typename T>
std::string Rejected(ValueType type) {
  if (std::is_same_v<T, std::string> && type == ValueType::kString) return "other bytes";
  return absl::StrCat("a value of type ", Name(type));
}

}  // namespace

absl::Status Metadata::ReadNext(ByteCursor& cursor) {
  const std::string counted = absl::StrCat("key ", values_.size());
  FT_ASSIGN_OR_RETURN(const absl::string_view key, cursor.String(counted));
  const std::string shown = absl::Utf8SafeCHexEscape(key.substr(0, kMaxShownKeyBytes));
  if (key.empty() || key.size() > kMaxKeyBytes || tokenizer::FirstInvalidUtf8(key)) {
    return Error(shown, "expected a key of 1 to ", kMaxKeyBytes, " bytes of UTF-8, got ", key.size());
  }
  FT_ASSIGN_OR_RETURN(auto type, cursor.Number<uint32_t>(shown));
  const bool is_list = type == static_cast<uint32_t>(ValueType::kList);
  std::optional<uint64_t> count;
  if (is_list) {
    FT_ASSIGN_OR_RETURN(type, cursor.Number<uint32_t>(shown));
    FT_ASSIGN_OR_RETURN(count, cursor.Number<uint64_t>(shown));
    if (type == static_cast<uint32_t>(ValueType::kList)) return Error(shown, "lists of lists are not supported");
  }
  if (type > static_cast<uint32_t>(ValueType::kF64)) return Error(shown, "type ", type, " is not known");
  Value value = {.type = static_cast<ValueType>(type), .count = count, .bytes = {}};
  FT_ASSIGN_OR_RETURN(value.bytes, ReadValues(cursor, value.type, count.value_or(1), shown));
  if (!values_.emplace(key, value).second) return Error(shown, "the file has this key twice");
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<std::optional<T>> Metadata::Optional(absl::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::optional<T>();
  const Value& value = found->second;
  if (value.count) return Error(key, "expected ", kExpected<T>, ", got a list of ", *value.count);
  ByteCursor cursor(value.bytes, path_);
  std::optional<T> read = Read<T>(cursor, value.type);
  if (!read) return Error(key, "expected ", kExpected<T>, ", got ", Rejected<T>(value.type));
  return read;
}

absl::StatusOr<const Value*> Metadata::FindList(absl::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  const Value& value = found->second;
  if (!value.count) return Error(key, "expected a list, got a value of type ", Name(value.type));
  if (*value.count > kMaxElements) {
    return Error(key, "expected a list of at most ", kMaxElements, " elements, got ", *value.count);
  }
  return &value;
}

template <typename T>
absl::StatusOr<std::optional<std::vector<T>>> Metadata::OptionalList(absl::string_view key) const {
  FT_ASSIGN_OR_RETURN(const Value* const list, FindList(key));
  if (list == nullptr) return std::optional<std::vector<T>>();
  ByteCursor cursor(list->bytes, path_);
  std::vector<T> elements;
  for (uint64_t i = 0; i < *list->count; ++i) {
    std::optional<T> read = Read<T>(cursor, list->type);
    if (!read) return Error(key, "element ", i, ": expected ", kExpected<T>, ", got ", Rejected<T>(list->type));
    elements.push_back(*std::move(read));
  }
  return elements;
}

absl::StatusOr<int64_t> Metadata::RequiredListSize(absl::string_view key) const {
  FT_ASSIGN_OR_RETURN(const Value* const list, FindList(key));
  if (list == nullptr) return Error(key, "is missing");
  return static_cast<int64_t>(*list->count);
}

template absl::StatusOr<std::optional<bool>> Metadata::Optional(absl::string_view) const;
template absl::StatusOr<std::optional<int64_t>> Metadata::Optional(absl::string_view) const;
template absl::StatusOr<std::optional<double>> Metadata::Optional(absl::string_view) const;
template absl::StatusOr<std::optional<std::string>> Metadata::Optional(absl::string_view) const;
template absl::StatusOr<std::optional<std::vector<int64_t>>> Metadata::OptionalList(absl::string_view) const;
template absl::StatusOr<std::optional<std::vector<double>>> Metadata::OptionalList(absl::string_view) const;
template absl::StatusOr<std::optional<std::vector<std::string>>> Metadata::OptionalList(absl::string_view) const;

}  // namespace foretoken::gguf
