// SPDX-License-Identifier: Apache-2.0
#include "common/base/error_text.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace foretoken::base {
namespace {

constexpr absl::string_view kReasonUrl = "foretoken/reason";
constexpr absl::string_view kFieldUrl = "foretoken/field";
constexpr absl::string_view kPassingUrl = "foretoken/passing";
constexpr absl::string_view kConfidentialUrl = "foretoken/confidential";

}  // namespace

std::string Quoted(absl::string_view foreign, size_t max_bytes) {
  const std::string shown = absl::CHexEscape(foreign.substr(0, max_bytes));
  if (foreign.size() <= max_bytes) return absl::StrCat("\"", shown, "\"");
  return absl::StrCat("\"", shown, "...\" of ", foreign.size(), " bytes");
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReasonUrl);
  return reason ? std::string(*reason) : absl::StatusCodeToString(status.code());
}

absl::Status WithField(absl::Status status, absl::string_view field) {
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto field = status.GetPayload(kFieldUrl);
  return field ? std::string(*field) : std::string();
}

absl::Status Passing(absl::Status status) {
  status.SetPayload(kPassingUrl, absl::Cord());
  return status;
}

bool IsPassing(const absl::Status& status) { return status.GetPayload(kPassingUrl).has_value(); }

absl::Status Confidential(absl::Status status) {
  status.SetPayload(kConfidentialUrl, absl::Cord());
  return status;
}

bool IsConfidential(const absl::Status& status) { return status.GetPayload(kConfidentialUrl).has_value(); }

}  // namespace foretoken::base
