// SPDX-License-Identifier: Apache-2.0
// The random generator. If this test fails, requests with a seed give other tokens than before, and third-party
// proposers guess wrong noise.
#include "kernels/philox.h"

#include <gtest/gtest.h>

namespace foretoken::kernels {
namespace {

// The known answers of the authors' Random123 distribution, philox4x32 with 10 rounds.
TEST(Philox4x32, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(~uint64_t{0}, {~0u, ~0u, ~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace foretoken::kernels
