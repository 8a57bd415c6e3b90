// SPDX-License-Identifier: Apache-2.0
// Verification: walks token trees along the tokens that the target draws. See AcceptTreesArgs.
//
// Rows are drawn, or weighed, side by side, whether the walk will reach them or not. Then trees are walked, and the
// rows on the walk are scored where log-probabilities are requested. All of this is enqueued, and the tokens stay on
// the device until the host asks for the paths.
#pragma once

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Enqueues the work. The paths are filled when the device is synchronised; the other arguments may change at once.
void AcceptTrees(const AcceptTreesArgs& args, Device& device);

}  // namespace foretoken::kernels::cuda
