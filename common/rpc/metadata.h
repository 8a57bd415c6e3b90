// SPDX-License-Identifier: Apache-2.0
// What a call's metadata holds under a key.
#pragma once

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/string_ref.h"

namespace foretoken::rpc {

// Empty if the call has no such key. Several entries are one list, as in HTTP (RFC 9110, 5.3): "a,b".
inline std::string MetadataValue(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, const char* key) {
  std::string value;
  const auto [begin, end] = metadata.equal_range(key);
  for (auto entry = begin; entry != end; ++entry) {
    absl::StrAppend(&value, entry == begin ? "" : ",", absl::string_view(entry->second.data(), entry->second.size()));
  }
  return value;
}

}  // namespace foretoken::rpc
