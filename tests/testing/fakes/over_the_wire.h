// SPDX-License-Identifier: Apache-2.0
// The protocol's messages and checks between InProcessProposers and the engine, without a network.
//
//   InProcessProposers proposers({&draft}, OverTheWire(/*num_tokens=*/4093));
#pragma once

#include <utility>

#include "common/rpc/tree_conversion.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::testing {

// A tree that the checks refuse fails the test. Its sequence then gets no guesses.
inline Delivery OverTheWire(int32_t num_tokens) {
  return [num_tokens](const speculation::TokenTree& tree, uint32_t proposer_bit) {
    absl::StatusOr<speculation::TokenTree> arrived =
        rpc::FromProto(rpc::ToProto(tree, /*session_id=*/1), {.num_tokens = num_tokens, .proposers = proposer_bit});
    EXPECT_TRUE(arrived.ok()) << arrived.status();
    return std::move(arrived).value_or(speculation::TokenTree{.position = tree.position});
  };
}

}  // namespace foretoken::testing
