// SPDX-License-Identifier: Apache-2.0
// The connection to one address of a proposer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

// Makes a channel that connects on first use. Every channel has its own connection, so that each address is one
// replica. `dns_name` is the HOST:PORT that was resolved to the address; empty: none. TLS expects the certificate of
// its host.
std::shared_ptr<grpc::Channel> MakeProposerChannel(const std::string& address, const std::string& dns_name,
                                                   const ProposerPoolOptions& options);

}  // namespace foretoken::verifier
