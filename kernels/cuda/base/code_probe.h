// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace foretoken::kernels::cuda {

// True if this build's kernels run on the current device: as machine code, or as PTX that the driver translates.
bool HasCodeForDevice();

}  // namespace foretoken::kernels::cuda
