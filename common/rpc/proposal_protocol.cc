// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/proposal_protocol.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace foretoken::rpc {

std::string RefusalName(v1::RefusalReason reason) {
  if (!v1::RefusalReason_IsValid(reason)) reason = v1::REFUSAL_REASON_UNSPECIFIED;
  return absl::AsciiStrToLower(absl::StripPrefix(v1::RefusalReason_Name(reason), "REFUSAL_REASON_"));
}

}  // namespace foretoken::rpc
