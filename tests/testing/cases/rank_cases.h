// SPDX-License-Identifier: Apache-2.0
// The required behaviour of the ops of tensor-parallel ranks, bit for bit, for any backend. Arguments are host
// pointers.
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

// Checks sums that overwrite the output, and sums that are added to it. Other orders would give other bits.
void ExpectSumsInRankOrder(const std::function<void(const kernels::SumRanksArgs&)>& sum_ranks);

// Checks an output that is the first of the pieces.
void ExpectSumInItsFirstPiece(const std::function<void(const kernels::SumRanksArgs&)>& sum_ranks);

// Checks ranks with different numbers of columns.
void ExpectJoinedColumns(const std::function<void(const kernels::JoinColumnsArgs&)>& join_columns);

// Returns distinct bf16 elements, fewer than 16,000.
std::vector<uint16_t> DistinctElements(size_t count);

// Checks a matrix of DistinctElements that holds the ids 100, 101, ... of a vocabulary. Other ids give zeros.
void ExpectZerosOfIdsThatAreNotHeld(const std::vector<uint16_t>& elements, int64_t num_columns,
                                    const std::function<void(const kernels::EmbedArgs&)>& embed);

}  // namespace foretoken::testing
