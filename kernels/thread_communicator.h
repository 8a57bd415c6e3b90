// SPDX-License-Identifier: Apache-2.0
// The Communicator of ranks that are threads of one process and can read each other's device memory: those of a CPU,
// or several on one GPU. A rank tells where its piece lies, all meet, every receiver copies, all meet again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/communicator.h"

namespace foretoken::kernels {

// One per backend, which is that of the rank. Backends outlive them.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(std::span<Backend* const> backends);

}  // namespace foretoken::kernels
