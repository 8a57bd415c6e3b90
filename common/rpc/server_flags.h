// SPDX-License-Identifier: Apache-2.0
// The flags that both services have for their ports: --insecure, --tls_certificate, --tls_key, --tls_client_ca,
// --tls_client_identities, --tls_refresh and --health_listen. Each service has its own --listen.
#pragma once

#include <string>
#include <vector>

#include "common/rpc/server.h"

namespace foretoken::rpc {

// The security that the flags ask for.
ServerSecurity ServerSecurityFromFlags();

// The flags whose value must not be empty: TLS or a check of callers would be off, and nobody would see that a variable
// of the shell was unset.
std::vector<std::string> ServerFlagsThatNeedAValue();

}  // namespace foretoken::rpc
