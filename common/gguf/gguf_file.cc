// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/gguf_file.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::gguf {
namespace {

constexpr absl::string_view kMagic = "GGUF";
constexpr uint32_t kMaxDims = 4;
constexpr size_t kMaxNameBytes = 256;  // writers stop at 64
constexpr size_t kMaxShownNameBytes = 80;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = int64_t{1} << 20;

template <typename... Parts>
absl::Status Damaged(absl::string_view where, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", parts...));
}

// A tensor's entry in the header.
struct Entry {
  std::string name;
  std::string where;  // the file and the tensor, for messages
  GgufTensor tensor;  // without bytes
  uint64_t num_bytes = 0;
  uint64_t offset = 0;  // from the start of the data
};

// Reads the magic number and the version.
absl::Status CheckVersion(ByteCursor& cursor, absl::string_view path) {
  FT_ASSIGN_OR_RETURN(const auto magic, cursor.Bytes(kMagic.size(), "the first bytes"));
  const absl::string_view got(reinterpret_cast<const char*>(magic.data()), magic.size());
  if (got != kMagic) {
    return Damaged(path, "expected a GGUF file, got one that begins with \"", absl::CHexEscape(got), "\"");
  }
  FT_ASSIGN_OR_RETURN(const auto version, cursor.Number<uint32_t>("version"));
  if (version == 2 || version == 3) return absl::OkStatus();
  const bool is_big_endian = version != 0 && (version & 0xffff) == 0;
  return Damaged(path, "expected GGUF version 2 or 3, got ",
                 is_big_endian ? "a big-endian file" : absl::StrCat(version));
}

// Reads the dimensions and computes the number of bytes.
absl::Status ReadShape(ByteCursor& cursor, Entry& entry) {
  FT_ASSIGN_OR_RETURN(const auto num_dims, cursor.Number<uint32_t>(entry.where));
  if (num_dims > kMaxDims) return Damaged(entry.where, "expected at most ", kMaxDims, " dimensions, got ", num_dims);
  uint64_t num_values = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    FT_ASSIGN_OR_RETURN(const auto dim, cursor.Number<uint64_t>(entry.where));
    // No type has more than 4 bytes per value, so the number of bytes below cannot overflow.
    const bool fits = dim > 0 && dim <= (uint64_t{1} << 48) && !__builtin_mul_overflow(num_values, dim, &num_values) &&
                      num_values <= (uint64_t{1} << 48);
    if (!fits) return Damaged(entry.where, "dimension ", i, " of ", dim, ": expected 1 to 2^48 values in all");
    entry.tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  std::ranges::reverse(entry.tensor.shape);
  FT_ASSIGN_OR_RETURN(const auto type_id, cursor.Number<uint32_t>(entry.where));
  absl::StatusOr<TensorType> type = FindTensorType(type_id);
  if (!type.ok()) return Damaged(entry.where, type.status().message());
  entry.tensor.type = *type;
  const int64_t row_values = entry.tensor.shape.empty() ? 1 : entry.tensor.shape.back();
  if (row_values % type->block_values != 0) {
    return Damaged(entry.where, type->name, " expects rows of a multiple of ", type->block_values, " values, got ",
                   row_values);
  }
  entry.num_bytes = num_values / type->block_values * type->block_bytes;
  return absl::OkStatus();
}

absl::StatusOr<Entry> ReadEntry(ByteCursor& cursor, absl::string_view path, uint64_t tensor_idx) {
  FT_ASSIGN_OR_RETURN(const absl::string_view name, cursor.String(absl::StrCat("tensor ", tensor_idx)));
  const std::string shown = absl::Utf8SafeCHexEscape(name.substr(0, kMaxShownNameBytes));
  Entry entry = {.name = std::string(name), .where = absl::StrCat(path, ": tensor ", shown)};
  if (name.empty() || name.size() > kMaxNameBytes || tokenizer::FirstInvalidUtf8(name)) {
    return Damaged(entry.where, "expected a name of 1 to ", kMaxNameBytes, " bytes of UTF-8, got ", name.size());
  }
  FT_RETURN_IF_ERROR(ReadShape(cursor, entry));
  FT_ASSIGN_OR_RETURN(entry.offset, cursor.Number<uint64_t>(entry.where));
  return entry;
}

absl::StatusOr<int64_t> ReadAlignment(const Metadata& metadata) {
  constexpr const char* kKey = "general.alignment";
  FT_ASSIGN_OR_RETURN(const int64_t alignment, metadata.OrDefault<int64_t>(kKey, kDefaultAlignment));
  const bool is_valid =
      alignment >= 1 && alignment <= kMaxAlignment && std::has_single_bit(static_cast<uint64_t>(alignment));
  if (is_valid) return alignment;
  return metadata.Error(kKey, "expected a power of two up to ", kMaxAlignment, ", got ", alignment);
}

// Gives every entry its bytes.
absl::Status Place(std::vector<Entry>& entries, std::span<const std::byte> data, int64_t alignment) {
  for (Entry& entry : entries) {
    if (entry.offset % alignment != 0) {
      return Damaged(entry.where, "expected an offset at a multiple of ", alignment, ", got ", entry.offset);
    }
    if (entry.offset > data.size() || entry.num_bytes > data.size() - entry.offset) {
      return Damaged(entry.where, entry.tensor.type.name, " [", absl::StrJoin(entry.tensor.shape, ", "), "] needs ",
                     entry.num_bytes, " bytes from offset ", entry.offset, ", the file has ", data.size(),
                     " bytes of data");
    }
    entry.tensor.bytes = data.subspan(entry.offset, entry.num_bytes);
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.offset, entry.num_bytes); });
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry& previous = entries[i - 1];
    if (previous.offset + previous.num_bytes > entries[i].offset) {
      return Damaged(entries[i].where, "overlaps tensor ", absl::Utf8SafeCHexEscape(previous.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufContent> ReadGguf(std::span<const std::byte> file, const std::string& path) {
  ByteCursor cursor(file, path);
  FT_RETURN_IF_ERROR(CheckVersion(cursor, path));
  FT_ASSIGN_OR_RETURN(const auto num_tensors, cursor.Number<uint64_t>("the number of tensors"));
  FT_ASSIGN_OR_RETURN(const auto num_keys, cursor.Number<uint64_t>("the number of keys"));
  GgufContent content = {.metadata = Metadata(path), .tensors = {}};
  // Wrong counts end with the file's bytes, because nothing is allocated for them in advance.
  for (uint64_t i = 0; i < num_keys; ++i) FT_RETURN_IF_ERROR(content.metadata.ReadNext(cursor));
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    FT_ASSIGN_OR_RETURN(Entry entry, ReadEntry(cursor, path, i));
    entries.push_back(std::move(entry));
  }
  FT_ASSIGN_OR_RETURN(const int64_t alignment, ReadAlignment(content.metadata));
  const size_t header_bytes = (cursor.position() + alignment - 1) / alignment * alignment;
  const std::span<const std::byte> data = file.subspan(std::min(header_bytes, file.size()));
  FT_RETURN_IF_ERROR(Place(entries, data, alignment));
  for (Entry& entry : entries) {
    if (!content.tensors.emplace(std::move(entry.name), std::move(entry.tensor)).second) {
      return Damaged(entry.where, "the file has this tensor twice");
    }
  }
  return content;
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  FT_ASSIGN_OR_RETURN(base::MappedFile file, base::MappedFile::Open(path));
  FT_ASSIGN_OR_RETURN(GgufContent content, ReadGguf(file.bytes(), path));
  return GgufFile(std::move(file), std::move(content));
}

}  // namespace foretoken::gguf
