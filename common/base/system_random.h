// SPDX-License-Identifier: Apache-2.0
// Random numbers of the operating system's generator. Known numbers do not help to predict another one. Use them for
// numbers that outsiders see and must not predict, such as ids and seeds.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace foretoken::base {

// 64 random bits. A thread keeps its next few, so a process must not fork to go on in both halves.
uint64_t SystemRandomBits();

}  // namespace foretoken::base
