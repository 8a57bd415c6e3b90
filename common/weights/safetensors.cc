// SPDX-License-Identifier: Apache-2.0
#include "common/weights/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken::weights {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own reader

template <typename... Parts>
absl::Status Damaged(absl::string_view where, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", parts...));
}

std::optional<uint64_t> ItemBytes(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, uint64_t> kItemBytes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8},
  };
  for (const auto& [name, bytes] : kItemBytes) {
    if (name == dtype) return bytes;
  }
  return std::nullopt;
}

// A file with two tensors of one name is damaged.
absl::StatusOr<json> ParseHeader(absl::string_view text, absl::string_view path) {
  FT_ASSIGN_OR_RETURN(json header, base::ParseJson(text, absl::StrCat(path, ": the header")));
  if (!header.is_object()) return Damaged(path, "the header is not a JSON object");
  if (const auto repeated = base::FindRepeatedName(text)) {
    return Damaged(path, "the header names ", *repeated, " twice");
  }
  return header;
}

absl::StatusOr<std::vector<int64_t>> ReadIntegers(const json& entry, const char* key, absl::string_view where) {
  const auto list = entry.find(key);
  if (list == entry.end() || !list->is_array()) return Damaged(where, key, " is missing or no list");
  std::vector<int64_t> integers;
  for (const json& item : *list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
      return Damaged(where, key, " expects integers from 0 to 2^63 - 1, got ",
                     item.dump(-1, ' ', false, json::error_handler_t::replace));
    }
    integers.push_back(item.get<int64_t>());
  }
  return integers;
}

absl::StatusOr<StoredTensor> ReadEntry(const json& entry, std::span<const std::byte> data, absl::string_view where) {
  if (!entry.is_object()) return Damaged(where, "the header entry is not an object");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return Damaged(where, "dtype is missing or no string");
  StoredTensor tensor{.dtype = dtype->get<std::string>(), .shape = {}, .bytes = {}};
  const std::optional<uint64_t> item_bytes = ItemBytes(tensor.dtype);
  if (!item_bytes) return Damaged(where, "dtype ", tensor.dtype, " is not known");

  FT_ASSIGN_OR_RETURN(tensor.shape, ReadIntegers(entry, "shape", where));
  uint64_t expected_bytes = *item_bytes;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(expected_bytes, static_cast<uint64_t>(dim), &expected_bytes)) {
      return Damaged(where, "shape [", absl::StrJoin(tensor.shape, ", "), "] overflows");
    }
  }

  FT_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ReadIntegers(entry, "data_offsets", where));
  if (offsets.size() != 2) return Damaged(where, "data_offsets expects 2 integers, got ", offsets.size());
  const auto begin = static_cast<uint64_t>(offsets[0]);
  const auto end = static_cast<uint64_t>(offsets[1]);
  if (begin > end) return Damaged(where, "data_offsets [", begin, ", ", end, "] run backwards");
  if (end > data.size()) {
    return Damaged(where, "data_offsets [", begin, ", ", end, "] end behind the file's ", data.size(),
                   " bytes of data");
  }
  if (end - begin != expected_bytes) {
    return Damaged(where, tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "] expects ", expected_bytes,
                   " bytes, data_offsets give ", end - begin);
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

// In the order of their places, every tensor begins where the previous one ends, and the last one ends with the file.
absl::Status CheckCoverage(const StoredTensors& tensors, std::span<const std::byte> data, absl::string_view path) {
  std::vector<const StoredTensors::value_type*> by_place;
  for (const auto& entry : tensors) by_place.push_back(&entry);
  const auto range = [](const StoredTensors::value_type* entry) {
    const std::span<const std::byte> bytes = entry->second.bytes;
    return std::make_pair(bytes.data(), bytes.data() + bytes.size());
  };
  std::ranges::sort(by_place, {}, range);
  const std::byte* covered_end = data.data();
  absl::string_view previous = "the header";
  for (const auto* entry : by_place) {
    const auto [begin, end] = range(entry);
    if (begin < covered_end) return Damaged(path, "tensor ", entry->first, " overlaps ", previous);
    if (begin > covered_end) {
      return Damaged(path, "tensor ", entry->first, " begins ", begin - covered_end, " bytes behind ", previous);
    }
    covered_end = end;
    previous = entry->first;
  }
  const size_t num_loose_bytes = data.data() + data.size() - covered_end;
  if (num_loose_bytes != 0) return Damaged(path, num_loose_bytes, " bytes at the end belong to no tensor");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredTensors> ReadSafetensors(std::span<const std::byte> file, absl::string_view path) {
  if (file.size() < kLengthBytes) {
    return Damaged(path, "expected at least ", kLengthBytes, " bytes, the file has ", file.size());
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    return Damaged(path, "a header of ", header_bytes, " bytes, at most ", kMaxHeaderBytes, " are allowed");
  }
  if (header_bytes > rest.size()) {
    return Damaged(path, "a header of ", header_bytes, " bytes in a file of ", file.size());
  }
  const absl::string_view text(reinterpret_cast<const char*>(rest.data()), header_bytes);
  const std::span<const std::byte> data = rest.subspan(header_bytes);

  FT_ASSIGN_OR_RETURN(const json header, ParseHeader(text, path));
  StoredTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    FT_ASSIGN_OR_RETURN(StoredTensor tensor, ReadEntry(entry, data, absl::StrCat(path, ": tensor ", name)));
    tensors.emplace(name, std::move(tensor));
  }
  FT_RETURN_IF_ERROR(CheckCoverage(tensors, data, path));
  return tensors;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  FT_ASSIGN_OR_RETURN(base::MappedFile file, base::MappedFile::Open(path));
  FT_ASSIGN_OR_RETURN(StoredTensors tensors, ReadSafetensors(file.bytes(), path));
  return SafetensorsFile(std::move(file), std::move(tensors));
}

}  // namespace foretoken::weights
