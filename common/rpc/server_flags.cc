// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server_flags.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/time.h"

ABSL_FLAG(
    bool, insecure, false,
    "serve without encryption also on an address that other machines reach; anybody there can then read and send");
ABSL_FLAG(std::string, tls_certificate, "",
          "PEM file of the server's certificate chain; with --tls_key it turns TLS on");
ABSL_FLAG(std::string, tls_key, "", "PEM file of the certificate's key");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file of the authorities of clients' certificates; every client must then have one (mutual TLS)");
ABSL_FLAG(std::vector<std::string>, tls_client_identities, {},
          "URI or DNS names, as in the clients' certificates, that may connect, for example "
          "spiffe://cluster/ns/llm/sa/verifier; unset: every client with a certificate of --tls_client_ca");
ABSL_FLAG(absl::Duration, tls_refresh, absl::Seconds(10), "time between looks at the TLS files for newer ones");
ABSL_FLAG(std::string, health_listen, "",
          "HOST:PORT of a second port, without TLS, for health checks and reflection; empty: none");

namespace foretoken::rpc {

ServerSecurity ServerSecurityFromFlags() {
  return {.tls = {.certificate = absl::GetFlag(FLAGS_tls_certificate),
                  .key = absl::GetFlag(FLAGS_tls_key),
                  .ca = absl::GetFlag(FLAGS_tls_client_ca),
                  .identities = absl::GetFlag(FLAGS_tls_client_identities),
                  .refresh = absl::GetFlag(FLAGS_tls_refresh)},
          .is_insecure = absl::GetFlag(FLAGS_insecure),
          .health_address = absl::GetFlag(FLAGS_health_listen)};
}

std::vector<std::string> ServerFlagsThatNeedAValue() {
  return {"tls_certificate", "tls_key", "tls_client_ca", "tls_client_identities"};
}

}  // namespace foretoken::rpc
