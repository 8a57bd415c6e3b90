// SPDX-License-Identifier: Apache-2.0
// Names this build, for people and for the numerics fingerprint.
#pragma once

namespace foretoken::base {

// "0.1.0".
const char* Version();

// The maker of the machine code, as "gnu-12.2.0-9f8e7d6c": the compiler, and a digest of the kernels' flags.
const char* Toolchain();

}  // namespace foretoken::base
