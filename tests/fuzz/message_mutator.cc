// SPDX-License-Identifier: Apache-2.0
// Lets the fuzzer change fields of messages. A change of single bytes mostly breaks a message's lengths, so the fuzzer
// would seldom get behind the parser. One change in four is still of bytes.
//
// FUZZ_MESSAGES names the type of the input's first message and the type of the others; a name without a dot is of
// foretoken.v1. Each message stands behind FUZZ_PREFIX_BYTES bytes that are not part of it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/message.h"
#include "tests/fuzz/messages.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace foretoken::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Around the bounds of names, pieces and masks, in bytes.
constexpr size_t kEdgeBytes[] = {256, 257, 65'535, 65'536, 65'537};
// Around the numbers of tokens that a message treats as few, and of a piece.
constexpr int kEdgeTokens[] = {64, 65, 13'107, 13'108};

class MessageMutator {
 public:
  // No text or list grows beyond max_size bytes.
  MessageMutator(unsigned seed, size_t max_size) : random_(seed), max_size_(max_size) {}

  uint32_t Below(uint32_t count) { return static_cast<uint32_t>(random_()) % count; }

  // Changes one field of the message, or of a message in it.
  void Change(Message& message) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    const FieldDescriptor& any = *type.field(static_cast<int>(Below(static_cast<uint32_t>(type.field_count()))));
    const FieldDescriptor& field = Below(8) == 0 ? any : SetInstead(message, any);
    if (field.is_repeated()) return ChangeList(message, field);
    if (Below(8) == 0) return message.GetReflection()->ClearField(&message, &field);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return Set(message, field);
    Change(*message.GetReflection()->MutableMessage(&message, &field));
  }

 private:
  // The field that is set if the given one would take its place.
  static const FieldDescriptor& SetInstead(const Message& message, const FieldDescriptor& field) {
    const auto* oneof = field.real_containing_oneof();
    if (oneof == nullptr) return field;
    const FieldDescriptor* set = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
    return set == nullptr ? field : *set;
  }

  void ChangeList(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    const bool holds_messages = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (size > 0 && Below(6) == 0) return reflection.RemoveLast(&message, &field);
    const int at = size == 0 ? 0 : static_cast<int>(Below(static_cast<uint32_t>(size)));
    if (size > 1 && Below(4) == 0) return reflection.SwapElements(&message, &field, at, size - 1);
    if (size > 0 && holds_messages && Below(4) != 0) {
      return Change(*reflection.MutableRepeatedMessage(&message, &field, at));
    }
    if (!holds_messages) return size > 0 && Below(2) == 0 ? SetElement(message, field, at) : AddSome(message, field);
    Message& added = *reflection.AddMessage(&message, &field);
    if (size > 0) added.CopyFrom(reflection.GetRepeatedMessage(message, &field, at));
    Change(added);
  }

  uint64_t Integer() {
    static constexpr uint64_t kEdges[] = {0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1ull << 32,
                                          1ull << 63, ~0ull,      1024,       4096};
    return Below(8) == 0 ? kEdges[Below(std::size(kEdges))] : Below(Below(2) == 0 ? 16 : 1400);
  }
  float Number() {
    static constexpr float kEdges[] = {
        0,        -1, 2, 1e30f, 1e-30f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        0x1p-149f};
    return Below(4) == 0 ? kEdges[Below(std::size(kEdges))] : static_cast<float>(Below(9)) / 8;
  }
  // Few changes, or a long text that repeats this one.
  std::string Text(std::string text) {
    const size_t size = text.size();
    const size_t edge = kEdgeBytes[Below(std::size(kEdgeBytes))];
    if (edge < max_size_ && Below(16) == 0) {
      const std::string pattern = text.empty() ? "\x5a" : text;
      while (text.size() < edge) text += pattern;
      return text.substr(0, edge);
    }
    text.resize(size + 32);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
    return text;
  }

  void Set(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.SetInt32(&message, &field, static_cast<int32_t>(Integer() - 1));
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.SetUInt32(&message, &field, static_cast<uint32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.SetInt64(&message, &field, static_cast<int64_t>(Integer()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection.SetUInt64(&message, &field, Integer());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.SetFloat(&message, &field, Number());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection.SetDouble(&message, &field, Number());
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.SetBool(&message, &field, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.SetEnumValue(&message, &field, static_cast<int>(Below(6)));
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.SetString(&message, &field, Text(reflection.GetString(message, &field)));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
  }

  // Seldom many elements at once.
  void AddSome(Message& message, const FieldDescriptor& field) {
    const int edge = kEdgeTokens[Below(std::size(kEdgeTokens))];
    const bool adds_many =
        field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 && Below(16) == 0 && static_cast<size_t>(edge) < max_size_;
    if (!adds_many) return Add(message, field);
    const uint32_t range = 1 + Below(1400);
    for (int i = 0; i < edge; ++i) message.GetReflection()->AddUInt32(&message, &field, Below(range));
  }

  void Add(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.AddInt32(&message, &field, static_cast<int32_t>(Integer() - 1));
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.AddUInt32(&message, &field, static_cast<uint32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection.AddUInt64(&message, &field, Integer());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.AddFloat(&message, &field, Number());
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.AddString(&message, &field, Text("a"));
      default:
        return;  // our messages have no other lists
    }
  }

  // A new element takes the place of an old one.
  void SetElement(Message& message, const FieldDescriptor& field, int at) {
    const Reflection& reflection = *message.GetReflection();
    Add(message, field);
    const int last = reflection.FieldSize(message, &field) - 1;
    reflection.SwapElements(&message, &field, at, last);
    reflection.RemoveLast(&message, &field);
  }

  std::minstd_rand random_;
  const size_t max_size_;
};

// Changes one message of the input, and returns the new input; empty if that message does not parse.
std::string ChangeOne(const std::vector<absl::string_view>& messages, MessageMutator& mutator) {
  static const char* const kTypes[] = {FUZZ_MESSAGES};
  const size_t at = mutator.Below(static_cast<uint32_t>(messages.size()));
  const std::string name = kTypes[std::min(at, std::size(kTypes) - 1)];
  const auto* type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
      absl::StrContains(name, '.') ? name : absl::StrCat("foretoken.v1.", name));
  auto& factory = *google::protobuf::MessageFactory::generated_factory();
  const std::unique_ptr<Message> message(factory.GetPrototype(type)->New());
  const absl::string_view prefix = messages[at].substr(0, FUZZ_PREFIX_BYTES);
  const absl::string_view bytes = messages[at].substr(prefix.size());
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
  for (uint32_t i = 0; i < 1 + mutator.Below(3); ++i) mutator.Change(*message);
  const std::string changed = absl::StrCat(prefix, message->SerializeAsString());
  std::vector<absl::string_view> all = messages;
  all[at] = changed;
  return absl::StrJoin(all, kMessageEnd);
}

}  // namespace
}  // namespace foretoken::testing

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace foretoken::testing;
  static auto* const no_log = google::protobuf::SetLogHandler(nullptr);  // of texts that are not UTF-8
  static_cast<void>(no_log);
  MessageMutator mutator(seed, max_size);
  if (mutator.Below(4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string changed = ChangeOne(SplitMessages(data, size), mutator);
  if (changed.empty() || changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
