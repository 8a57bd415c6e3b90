// SPDX-License-Identifier: Apache-2.0
// Random numbers of the operating system's generator. Nobody can predict one from others, however many are known. For
// numbers that outsiders see and must not predict: ids, seeds.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace foretoken::base {

// 64 random bits. They depend on no state of this process.
uint64_t SystemRandomBits();

}  // namespace foretoken::base
