// SPDX-License-Identifier: Apache-2.0
// Verification: walks token trees along what the target draws: see AcceptTreesArgs.
//
// Rows are drawn, or weighed, side by side, whether the walk will come to them or not; then trees are walked, and rows
// on the walk are scored where log-probabilities are wanted. All of it is enqueued, and the tokens stay on the device
// until the host asks for the paths.
#pragma once

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Enqueued: the paths are there when the device is synchronised, the other arguments are free at once.
void AcceptTrees(const AcceptTreesArgs& args, Device& device);

}  // namespace foretoken::kernels::cuda
