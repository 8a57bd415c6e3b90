// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/message_bounds.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "kernels/check.h"

namespace foretoken::rpc {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

struct MessageBounds::Fields {
  struct Field {
    const FieldDescriptor* descriptor = nullptr;
    size_t max_count = 0;
    size_t max_bytes = 0;
    std::unique_ptr<Fields> fields;  // of a message field
  };
  absl::flat_hash_map<int, Field> by_number;
};

namespace {

using Fields = MessageBounds::Fields;

bool IsText(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING || field.type() == FieldDescriptor::TYPE_BYTES;
}

bool IsUtf8(absl::string_view text) {
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (auto left = static_cast<utf8proc_ssize_t>(text.size()); left > 0;) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t length = utf8proc_iterate(at, left, &code_point);
    if (length <= 0) return false;
    at += length;
    left -= length;
  }
  return true;
}

// Removes each bound that it uses from `bounds`.
std::unique_ptr<Fields> MakeFields(const Descriptor& descriptor, const std::string& prefix,
                                   absl::flat_hash_map<std::string, FieldBound>& bounds) {
  auto fields = std::make_unique<Fields>();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string path = absl::StrCat(prefix, field.name());
    Fields::Field& made = fields->by_number[field.number()];
    made.descriptor = &field;
    if (field.is_repeated() || IsText(field)) {
      const auto bound = bounds.extract(path);
      if (bound.empty()) std::fprintf(stderr, "%s: has no bound\n", path.c_str());
      FT_CHECK(!bound.empty());
      made.max_count = bound.mapped().max_count;
      made.max_bytes = bound.mapped().max_bytes;
    }
    if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
      made.fields = MakeFields(*field.message_type(), path + ".", bounds);
    }
  }
  return fields;
}

// The number of elements in a packed field, or 1.
size_t NumPacked(FieldDescriptor::Type type, absl::string_view value) {
  switch (WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(type))) {
    case WireFormatLite::WIRETYPE_FIXED32:
      return value.size() / 4;
    case WireFormatLite::WIRETYPE_FIXED64:
      return value.size() / 8;
    case WireFormatLite::WIRETYPE_VARINT:  // its last byte has the high bit clear
      return static_cast<size_t>(std::count_if(value.begin(), value.end(), [](char byte) { return byte >= 0; }));
    default:
      return 1;
  }
}

// False: the parser keeps a field of this wire type like an unknown field.
bool IsReadAs(const FieldDescriptor& field, WireFormatLite::WireType wire_type) {
  const auto type = static_cast<WireFormatLite::FieldType>(field.type());
  const bool may_be_packed = field.is_packable() && wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  return wire_type == WireFormatLite::WireTypeForFieldType(type) || may_be_packed;
}

// The numbers of elements of a message's repeated fields. If a message field occurs several times, the parser merges
// the occurrences, so they share these counts.
struct Counts {
  absl::flat_hash_map<int, size_t> num_elements;
  absl::flat_hash_map<int, std::unique_ptr<Counts>> merged;
};

// The current field of the walk, for errors.
struct Place {
  const Place* parent = nullptr;
  const FieldDescriptor* field = nullptr;
  size_t element_idx = 0;

  std::string Path() const {
    const std::string prefix = parent == nullptr ? "" : absl::StrCat(parent->Path(), ".");
    if (!field->is_repeated()) return absl::StrCat(prefix, field->name());
    return absl::StrCat(prefix, field->name(), "[", element_idx, "]");
  }
};

class Walk {
 public:
  // Returns false if the bytes are not a message of this type; status() then names the broken rule.
  bool Read(absl::string_view bytes, const Fields& fields, const Place* parent, Counts& counts);
  absl::Status CheckCounts(const Fields& fields, const Place* parent, const Counts& counts) const;
  absl::Status CheckTotals() const;
  const absl::Status& status() const { return status_; }

 private:
  bool ReadValue(absl::string_view value, const Fields::Field& field, const Place* parent, Counts& counts);
  bool Refuse(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  size_t num_elements_ = 0;  // elements that are objects of their own
  size_t num_unknown_bytes_ = 0;
  absl::Status status_;
};

bool Walk::Read(absl::string_view bytes, const Fields& fields, const Place* parent, Counts& counts) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  for (int begin = 0; const uint32_t tag = in.ReadTag(); begin = in.CurrentPosition()) {
    const auto field = fields.by_number.find(WireFormatLite::GetTagFieldNumber(tag));
    const WireFormatLite::WireType wire_type = WireFormatLite::GetTagWireType(tag);
    if (field == fields.by_number.end() || !IsReadAs(*field->second.descriptor, wire_type)) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      num_unknown_bytes_ += static_cast<size_t>(in.CurrentPosition() - begin);
    } else if (wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      if (field->second.descriptor->is_repeated()) ++counts.num_elements[field->first];
    } else {
      uint32_t length;
      if (!in.ReadVarint32(&length) || length > bytes.size() - in.CurrentPosition()) return false;
      const absl::string_view value = bytes.substr(in.CurrentPosition(), length);
      if (!in.Skip(static_cast<int>(length)) || !ReadValue(value, field->second, parent, counts)) return false;
    }
  }
  return in.ConsumedEntireMessage();
}

bool Walk::ReadValue(absl::string_view value, const Fields::Field& field, const Place* parent, Counts& counts) {
  const FieldDescriptor& descriptor = *field.descriptor;
  Place place{.parent = parent, .field = &descriptor};
  if (descriptor.is_repeated()) {
    size_t& num_elements = counts.num_elements[descriptor.number()];
    place.element_idx = num_elements;
    num_elements += descriptor.is_packable() ? NumPacked(descriptor.type(), value) : 1;
    if (!descriptor.is_packable() && !descriptor.is_map()) ++num_elements_;
  }
  if (IsText(descriptor) && value.size() > field.max_bytes) {
    return Refuse(
        InvalidField(place.Path(), absl::StrCat("expected at most ", field.max_bytes, " bytes, got ", value.size())));
  }
  if (descriptor.type() == FieldDescriptor::TYPE_STRING && !IsUtf8(value)) {
    return Refuse(InvalidField(place.Path(), "expected UTF-8, got another byte sequence"));
  }
  if (field.fields == nullptr) return true;
  if (descriptor.is_repeated()) {
    Counts of_element;
    if (!Read(value, *field.fields, &place, of_element)) return false;
    const absl::Status within = CheckCounts(*field.fields, &place, of_element);
    return within.ok() || Refuse(within);
  }
  std::unique_ptr<Counts>& merged = counts.merged[descriptor.number()];
  if (merged == nullptr) merged = std::make_unique<Counts>();
  return Read(value, *field.fields, &place, *merged);
}

absl::Status Walk::CheckCounts(const Fields& fields, const Place* parent, const Counts& counts) const {
  for (const auto& [number, num_elements] : counts.num_elements) {
    const Fields::Field& field = fields.by_number.at(number);
    if (num_elements <= field.max_count) continue;
    const std::string prefix = parent == nullptr ? "" : absl::StrCat(parent->Path(), ".");
    return InvalidField(absl::StrCat(prefix, field.descriptor->name()),
                        absl::StrCat("expected at most ", field.max_count, ", got ", num_elements));
  }
  for (const auto& [number, merged] : counts.merged) {
    const Fields::Field& field = fields.by_number.at(number);
    const Place place{.parent = parent, .field = field.descriptor};
    FT_RETURN_IF_ERROR(CheckCounts(*field.fields, &place, *merged));
  }
  return absl::OkStatus();
}

absl::Status Walk::CheckTotals() const {
  if (num_elements_ > MessageBounds::kMaxElements) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", MessageBounds::kMaxElements, " elements of all lists, got ", num_elements_));
  }
  if (num_unknown_bytes_ <= MessageBounds::kMaxUnknownBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected at most ", MessageBounds::kMaxUnknownBytes,
                                                 " bytes of unknown fields, got ", num_unknown_bytes_));
}

}  // namespace

absl::Status Malformed(const Descriptor& descriptor, size_t num_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("expected a ", descriptor.full_name(), ", got ", num_bytes, " bytes that do not parse as one"));
}

MessageBounds::MessageBounds(const Descriptor& descriptor, std::initializer_list<FieldBound> bounds)
    : descriptor_(&descriptor) {
  absl::flat_hash_map<std::string, FieldBound> by_path;
  for (const FieldBound& bound : bounds) FT_CHECK(by_path.try_emplace(std::string(bound.path), bound).second);
  fields_ = MakeFields(descriptor, "", by_path);
  for (const auto& [path, bound] : by_path)
    std::fprintf(stderr, "%s: has a bound, but the message has no such field\n", path.c_str());
  FT_CHECK(by_path.empty());
}

absl::Status MessageBounds::Check(absl::string_view bytes) const {
  Walk walk;
  Counts counts;
  if (!walk.Read(bytes, *fields_, nullptr, counts)) {
    return walk.status().ok() ? Malformed(*descriptor_, bytes.size()) : walk.status();
  }
  FT_RETURN_IF_ERROR(walk.CheckCounts(*fields_, nullptr, counts));
  return walk.CheckTotals();
}

}  // namespace foretoken::rpc
