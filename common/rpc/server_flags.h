// SPDX-License-Identifier: Apache-2.0
// The flags that both services have for their ports: --insecure, --tls_certificate, --tls_key, --tls_client_ca,
// --tls_client_identities, --tls_refresh and --health_listen. Each service has its own --listen.
#pragma once

#include "common/rpc/server.h"

namespace foretoken::rpc {

// The security that the flags ask for.
ServerSecurity ServerSecurityFromFlags();

}  // namespace foretoken::rpc
