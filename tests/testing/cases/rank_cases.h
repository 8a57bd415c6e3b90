// SPDX-License-Identifier: Apache-2.0
// What the ops of tensor-parallel ranks do, bit for bit, whichever backend has them. Arguments are the host's.
//
//   TEST(SumRanks, AddsInTheOrderOfTheRanksAndNoOther) {
//     ExpectSumsInRankOrder([](const kernels::SumRanksArgs& args) { SumRanks(args, pool); });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/ops.h"

namespace foretoken::testing {

// Stored, and added to what is there; other orders would give other bits.
void ExpectSumsInRankOrder(const std::function<void(const kernels::SumRanksArgs&)>& sum_ranks);

// Of ranks whose columns are not equally many.
void ExpectJoinedColumns(const std::function<void(const kernels::JoinColumnsArgs&)>& join_columns);

// bf16 elements that are all different, fewer than 16,000.
std::vector<uint16_t> DistinctElements(size_t count);

// A matrix of DistinctElements holds the ids 100, 101, ... of a vocabulary; others give zeros.
void ExpectZerosOfIdsThatAreNotHeld(const std::vector<uint16_t>& elements, int64_t num_columns,
                                    const std::function<void(const kernels::EmbedArgs&)>& embed);

}  // namespace foretoken::testing
