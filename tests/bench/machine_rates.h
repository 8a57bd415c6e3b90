// SPDX-License-Identifier: Apache-2.0
// The best rates of the machine, for comparison with the kernels: reading memory, and multiplying in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/thread_pool.h"

namespace foretoken::bench {

// Reads the words once on all threads. The result depends on all words, so the compiler keeps the reads.
uint64_t ReadAll(std::span<const uint64_t> words, kernels::cpu::ThreadPool& pool);

// Multiplies and adds in registers only, on all threads, with the instruction of the isa's kernel. Returns the number
// of multiply-adds.
double MultiplyInRegisters(kernels::cpu::Isa isa, kernels::cpu::ThreadPool& pool);

}  // namespace foretoken::bench
