// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/credential_files.h"

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

namespace foretoken::tracing {
namespace {

absl::StatusOr<std::string> Read(const std::string& path) {
  if (path.empty()) return std::string();
  absl::StatusOr<std::string> contents = base::ReadFile(path);
  if (contents.ok() && !contents->empty()) return contents;
  const absl::string_view why = contents.ok() ? "the file is empty" : contents.status().message();
  return absl::InvalidArgumentError(absl::StrCat("the exporter of traces cannot read ", path, ": ", why));
}

}  // namespace

absl::StatusOr<CredentialFiles> ReadCredentialFiles(const Endpoint& endpoint) {
  CredentialFiles files;
  FT_ASSIGN_OR_RETURN(files.ca, Read(endpoint.ca_file));
  FT_ASSIGN_OR_RETURN(files.client_key, Read(endpoint.client_key_file));
  FT_ASSIGN_OR_RETURN(files.client_certificate, Read(endpoint.client_certificate_file));
  return files;
}

}  // namespace foretoken::tracing
