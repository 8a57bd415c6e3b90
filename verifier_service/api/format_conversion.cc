// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/format_conversion.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {

absl::StatusOr<std::optional<GrammarSource>> ConvertFormat(const v1::GenerateRequest& request,
                                                           const ServedModel& model) {
  if (!request.has_response_format()) return std::nullopt;
  if (model.end_token_ids.empty()) {
    return rpc::InvalidField("response_format", "expected none, because the model has no token that ends a text");
  }
  if (request.stopping().ignore_eos()) {
    return rpc::InvalidField("stopping.ignore_eos",
                             "expected false with a response_format, whose end is the end of the text");
  }
  const v1::ResponseFormat& format = request.response_format();
  switch (format.format_case()) {
    case v1::ResponseFormat::kJsonSchema:
      return GrammarSource{.kind = GrammarKind::kJsonSchema, .text = format.json_schema()};
    case v1::ResponseFormat::kAnyJson:
      if (!format.any_json()) return rpc::InvalidField("response_format.any_json", "expected true, got false");
      return GrammarSource{.kind = GrammarKind::kJsonSchema, .text = "{}"};
    case v1::ResponseFormat::kRegex:
      return GrammarSource{.kind = GrammarKind::kRegex, .text = format.regex()};
    case v1::ResponseFormat::kEbnf:
      return GrammarSource{.kind = GrammarKind::kEbnf, .text = format.ebnf()};
    case v1::ResponseFormat::kChoices: {
      const std::vector<std::string> texts(format.choices().texts().begin(), format.choices().texts().end());
      if (texts.empty() || std::ranges::any_of(texts, &std::string::empty)) {
        return rpc::InvalidField("response_format.choices.texts", "expected at least one text, and no empty one");
      }
      return ChoiceOf(texts);
    }
    case v1::ResponseFormat::kStructuralTag:
      return GrammarSource{.kind = GrammarKind::kStructuralTag, .text = format.structural_tag()};
    case v1::ResponseFormat::FORMAT_NOT_SET:
      break;
  }
  return rpc::InvalidField("response_format", "expected one of its formats, got none that this server knows");
}

absl::Status FormatError(const v1::ResponseFormat& format, const absl::Status& refusal) {
  if (base::IsPassing(refusal)) return refusal;  // no room now
  if (!absl::IsInvalidArgument(refusal)) {       // a fault of ours, and not the client's deadline
    return absl::UnavailableError("response_format: the compiler of forms does not answer: try again");
  }
  const google::protobuf::FieldDescriptor* const field =
      format.GetReflection()->GetOneofFieldDescriptor(format, format.GetDescriptor()->oneof_decl(0));
  absl::Status error =
      base::Confidential(rpc::InvalidField(absl::StrCat("response_format.", field->name()), refusal.message()));
  const bool is_costly = base::ReasonOf(refusal) == kFormatTooCostly;
  return is_costly ? base::WithReason(std::move(error), kFormatTooCostly) : error;
}

}  // namespace foretoken::verifier
