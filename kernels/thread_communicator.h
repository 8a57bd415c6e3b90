// SPDX-License-Identifier: Apache-2.0
// A Communicator for ranks that are threads of one process and can read each other's device memory: ranks on a CPU, or
// several on one GPU. A rank publishes the address of its piece, all meet, every receiver copies, and all meet again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/communicator.h"

namespace foretoken::kernels {

// Makes one per backend, which is the backend of that rank. The backends must outlive the communicators.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(std::span<Backend* const> backends);

}  // namespace foretoken::kernels
