// SPDX-License-Identifier: Apache-2.0
// Reads the input, and many repetitions of it, as the bytes of a client's request. An accepted request, once parsed, is
// within its bounds, also in the bytes of fields that it does not have.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/rpc/parse_message.h"
#include "foretoken/v1/generation.pb.h"
#include "google/protobuf/wire_format.h"
#include "kernels/check.h"
#include "verifier_service/api/request_bounds.h"

namespace foretoken::verifier {
namespace {

constexpr int32_t kNumTokens = 100;
constexpr size_t kMaxPromptBytes = 1000, kMaxStopStrings = 16, kMaxStopBytes = 256;

// In the message and in the messages within it.
size_t NumUnknownBytes(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  size_t num_bytes =
      google::protobuf::internal::WireFormat::ComputeUnknownFieldsSize(reflection.GetUnknownFields(message));
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const int num_messages = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < num_messages; ++i) {
      num_bytes += NumUnknownBytes(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                        : reflection.GetMessage(message, field));
    }
  }
  return num_bytes;
}

void CheckRequest(const std::string& bytes) {
  static const RequestBounds bounds({.vocabulary_size = kNumTokens, .max_prompt_bytes = kMaxPromptBytes});
  v1::GenerateRequest request;
  if (!rpc::ParseMessage(bytes, bounds.generate, request).ok()) return;
  FT_CHECK(NumUnknownBytes(request) <= rpc::MessageBounds::kMaxUnknownBytes);
  FT_CHECK(request.text().size() <= kMaxPromptBytes);
  FT_CHECK(request.tokens().ids_size() <= static_cast<int>(kMaxPromptBytes));
  FT_CHECK(request.sampling().allowed_token_ids_size() <= kNumTokens);
  FT_CHECK(request.sampling().logit_bias_size() <= kNumTokens);
  FT_CHECK(request.stopping().stop_token_ids_size() <= kNumTokens);
  FT_CHECK(request.stopping().stop_strings_size() <= static_cast<int>(kMaxStopStrings));
  for (const std::string& text : request.stopping().stop_strings()) FT_CHECK(text.size() <= kMaxStopBytes);
}

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  foretoken::verifier::CheckRequest(input);
  if (input.empty()) return 0;
  std::string repeated;
  while (repeated.size() <= foretoken::rpc::MessageBounds::kMaxUnknownBytes) repeated += input;
  foretoken::verifier::CheckRequest(repeated);
  return 0;
}
