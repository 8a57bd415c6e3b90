// SPDX-License-Identifier: Apache-2.0
// The connection to one address of a proposer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

// Makes a channel that connects on first use. Every channel has its own connection, so that each address is one
// replica.
std::shared_ptr<grpc::Channel> MakeProposerChannel(const std::string& address, const ProposerPoolOptions& options);

}  // namespace foretoken::verifier
