// SPDX-License-Identifier: Apache-2.0
// The connection to one address of a proposer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

// Connects when it is used. Every channel has a connection of its own, so that each address is one replica.
std::shared_ptr<grpc::Channel> MakeProposerChannel(const std::string& address, const ProposerPoolOptions& options);

}  // namespace foretoken::verifier
