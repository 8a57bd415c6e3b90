// SPDX-License-Identifier: Apache-2.0
// Random numbers of the operating system's own generator: nobody can tell one from others, however many they have seen.
// For what outsiders see and must not predict: ids, seeds.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace foretoken::base {

// 64 random bits. No state of this process takes part.
uint64_t SystemRandomBits();

}  // namespace foretoken::base
