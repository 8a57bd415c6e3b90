// SPDX-License-Identifier: Apache-2.0
// What the machine can do at best, to hold the kernels against: reading memory, and multiplying in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/thread_pool.h"

namespace foretoken::bench {

// Reads the words once on all threads, and returns something that depends on all of them.
uint64_t ReadAll(std::span<const uint64_t> words, kernels::cpu::ThreadPool& pool);

// Multiplies and adds in registers only, on all threads, with the instruction that the isa's kernel is made of. Returns
// how many multiply-adds were done.
double MultiplyInRegisters(kernels::cpu::Isa isa, kernels::cpu::ThreadPool& pool);

}  // namespace foretoken::bench
