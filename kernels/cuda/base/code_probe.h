// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace foretoken::kernels::cuda {

// True if this build's kernels run on the current device: as machine code, or as PTX that the driver translates.
bool HasCodeForDevice();

// True if that code has ptx::GroupMma. The device alone does not say so: an H100 also runs PTX of compute capability
// 8.0, and there the instruction is missing.
bool HasGroupMma();

}  // namespace foretoken::kernels::cuda
