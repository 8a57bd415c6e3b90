// SPDX-License-Identifier: Apache-2.0
// See BranchRowsArgs.
#pragma once

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Enqueued: the children are there when the device is synchronised, the other arguments are free at once. Scores are
// f32 here, and in AcceptTrees double: the first child is what that draws unless two scores differ by less than f32 can
// show.
void BranchRows(const BranchRowsArgs& args, Device& device);

}  // namespace foretoken::kernels::cuda
