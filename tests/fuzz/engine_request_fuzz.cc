// SPDX-License-Identifier: Apache-2.0
// Reads the input as a request of vLLM's contract. An accepted request becomes a request of our protocol with valid
// fields or an error that names the contract's field, and never one of our field names.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"
#include "common/rpc/parse_message.h"
#include "common/tokenizer/tokenizer.h"
#include "google/protobuf/descriptor.h"
#include "kernels/check.h"
#include "verifier_service/api/format_conversion.h"
#include "verifier_service/api/request_conversion.h"
#include "verifier_service/vllm/request_translation.h"

namespace foretoken::verifier {
namespace {

ServedModel DemoModel() {
  static const auto* const tokenizer =
      new tokenizer::Tokenizer(*tokenizer::Tokenizer::Load(FORETOKEN_SOURCE_DIR "/deploy/demo/target"));
  ServedModel model;
  model.tokenizer = tokenizer;
  model.vocabulary_size = 4096;
  model.max_context_tokens = 64;
  model.max_prompt_bytes = 1000;
  model.end_token_ids = {4092};
  return model;
}

// Whether a request of their contract has the field, for example "sampling_params.stop[1]".
bool IsTheirs(absl::string_view path) {
  const google::protobuf::Descriptor* message = engine_api::GenerateRequest::descriptor();
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (message == nullptr) return false;
    const std::string name(part.substr(0, part.find('[')));
    const google::protobuf::FieldDescriptor* const field = message->FindFieldByName(name);
    if (field == nullptr) return message->FindOneofByName(name) != nullptr;
    message = field->message_type();
  }
  return true;
}

void CheckError(const absl::Status& error) {
  if (error.ok()) return;
  const std::string field = base::FieldOf(InTheirWords(error));
  if (!IsTheirs(field)) std::fprintf(stderr, "%s\n", InTheirWords(error).ToString().c_str());
  FT_CHECK(IsTheirs(field));
}

void CheckRequest(absl::string_view bytes) {
  static const ServedModel model = DemoModel();
  static const EngineApiBounds bounds(model);
  engine_api::GenerateRequest theirs;
  if (!rpc::ParseMessage(bytes, bounds.generate, theirs).ok()) return;
  const auto ours = ToOurs(std::move(theirs), model);
  if (!ours.ok()) {
    FT_CHECK(absl::IsInvalidArgument(ours.status()));
    FT_CHECK(IsTheirs(base::FieldOf(ours.status())));
    return;
  }
  const auto request = ConvertRequest(*ours, model, [] { return uint64_t{7}; });
  CheckError(request.status());
  if (request.ok()) FT_CHECK(!request->prompt.empty() && request->num_samples >= 1);
  const auto form = ConvertFormat(*ours, model);
  CheckError(form.status());
  if (!form.ok() || !form->has_value()) return;
  CheckError(FormatError(ours->response_format(), absl::InvalidArgumentError("a refusal of the compiler")));
}

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  foretoken::verifier::CheckRequest({reinterpret_cast<const char*>(data), size});
  return 0;
}
