// SPDX-License-Identifier: Apache-2.0
// See BranchRowsArgs.
#pragma once

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Enqueues the work. The children are filled when the device is synchronised; the other arguments may change at once.
// Scores are f32 here and double in AcceptTrees. So the first child is the token that AcceptTrees draws, unless two
// scores are closer than f32 can tell apart.
void BranchRows(const BranchRowsArgs& args, Device& device);

}  // namespace foretoken::kernels::cuda
