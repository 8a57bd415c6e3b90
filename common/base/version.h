// SPDX-License-Identifier: Apache-2.0
// Which build this is, for people and for the numerics fingerprint.
#pragma once

namespace foretoken::base {

// "0.1.0".
const char* Version();

// What made the machine code: "gnu-12.2.0-9f8e7d6c", the compiler and a digest of the flags that the kernels have.
const char* Toolchain();

}  // namespace foretoken::base
