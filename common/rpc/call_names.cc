// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/call_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/rpc/metadata.h"
#include "common/rpc/status.h"

namespace foretoken::rpc {
namespace {

constexpr size_t kMaxNameBytes = 256;  // as of the fields of the message

absl::Status CheckName(const char* key, const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    return InvalidField(key, absl::StrCat("expected at most ", kMaxNameBytes, " bytes, got ", name.size()));
  }
  if (!std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c); })) {
    return InvalidField(key, absl::StrCat("expected printable ASCII characters, got ", base::Quoted(name)));
  }
  return absl::OkStatus();
}

}  // namespace

CallNames NamesOf(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  return {.request_id = MetadataValue(metadata, kRequestIdKey),
          .tenant = MetadataValue(metadata, kTenantKey),
          .priority = MetadataValue(metadata, kPriorityKey)};
}

absl::StatusOr<std::string> TenantOf(const CallNames& names, const std::string& in_message) {
  if (!in_message.empty()) return in_message;
  FT_RETURN_IF_ERROR(CheckName(kTenantKey, names.tenant));
  return names.tenant;
}

absl::Status FillIn(const CallNames& names, v1::GenerateRequest& request) {
  FT_ASSIGN_OR_RETURN(*request.mutable_tenant(), TenantOf(names, request.tenant()));
  if (request.request_id().empty()) {
    FT_RETURN_IF_ERROR(CheckName(kRequestIdKey, names.request_id));
    request.set_request_id(names.request_id);
  }
  if (request.priority() == 0 && !names.priority.empty()) {
    int32_t priority = 0;
    if (!absl::SimpleAtoi(names.priority, &priority)) {
      return InvalidField(kPriorityKey, absl::StrCat("expected an integer, got ", base::Quoted(names.priority)));
    }
    request.set_priority(priority);
  }
  return absl::OkStatus();
}

}  // namespace foretoken::rpc
