// SPDX-License-Identifier: Apache-2.0
// A Communicator for ranks that are threads of one process and can read each other's device memory: ranks on a CPU, or
// several on one GPU. Each rank publishes the address of its piece, all ranks meet at a barrier, each receiver copies
// the pieces, and all ranks meet again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/communicator.h"

namespace foretoken::kernels {

// Makes one communicator per backend. backends[r] belongs to rank r. The backends must outlive the communicators.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(std::span<Backend* const> backends);

}  // namespace foretoken::kernels
