// SPDX-License-Identifier: Apache-2.0
// The PEM files that an exporter uses, read once.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/tracing/settings.h"

namespace foretoken::tracing {

struct CredentialFiles {
  std::string ca, client_key, client_certificate;  // contents; empty: no file was named
};

// Errors: INVALID_ARGUMENT with the file that cannot be read.
absl::StatusOr<CredentialFiles> ReadCredentialFiles(const Endpoint& endpoint);

}  // namespace foretoken::tracing
