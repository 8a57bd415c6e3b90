// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/utf8_bytes.h"
#include "common/tokenizer/unicode/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace foretoken::rpc {
namespace {

bool IsPassingLack(const absl::Status& status) { return absl::IsResourceExhausted(status) && base::IsPassing(status); }

// Cuts between characters. The result is always UTF-8, because a string field of the details holds it: libraries quote
// single bytes of what they refuse.
std::string Shortened(absl::string_view text) {
  constexpr absl::string_view kCut = "...";
  const std::string message = tokenizer::ValidUtf8(text);
  if (message.size() <= kMaxErrorBytes) return message;
  return absl::StrCat(base::WholeCharacters(message, kMaxErrorBytes - kCut.size()), kCut);
}

void AddBadRequest(absl::string_view field, absl::string_view message, google::rpc::Status& details) {
  google::rpc::BadRequest bad_request;
  auto& violation = *bad_request.add_field_violations();
  violation.set_field(std::string(field));
  const size_t description = std::min(message.size(), field.size() + 2);  // begins after "field: "
  violation.set_description(std::string(message.substr(description)));
  details.add_details()->PackFrom(bad_request);
}

std::string Details(const absl::Status& status, const std::string& message) {
  google::rpc::Status details;
  details.set_code(status.raw_code());
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(base::ReasonOf(status));
  info.set_domain("foretoken");
  details.add_details()->PackFrom(info);
  if (const std::string field = base::FieldOf(status); !field.empty()) AddBadRequest(field, message, details);
  if (absl::IsUnavailable(status) || IsPassingLack(status)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(kRetryDelay));
    details.add_details()->PackFrom(retry);
  }
  return details.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Shortened(status.message());
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), message, Details(status, message));
}

void AddPushback(const absl::Status& status, grpc::CallbackServerContext& context) {
  if (!IsPassingLack(status)) return;
  context.AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(absl::ToInt64Milliseconds(kRetryDelay)));
}

absl::Status FromGrpc(const grpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnimplemented && status.error_message().empty()) {  // as gRPC's servers answer
    return absl::UnimplementedError("the server has no such method: is it another service, or an older one?");
  }
  return absl::Status(code, status.error_message());
}

absl::Status InvalidField(absl::string_view field, absl::string_view why) {
  return base::WithField(base::WithReason(absl::InvalidArgumentError(absl::StrCat(field, ": ", why)), "INVALID_FIELD"),
                         field);
}

}  // namespace foretoken::rpc
