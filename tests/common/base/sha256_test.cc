// SPDX-License-Identifier: Apache-2.0
// SHA-256 digests. If this test fails, fingerprints change between builds, and services with equal models refuse each
// other.
#include "common/base/sha256.h"

#include <gtest/gtest.h>

namespace foretoken::base {
namespace {

// FIPS 180-2, appendix B.1.
TEST(Sha256, OfAbc) {
  Sha256 sha;
  sha.Update("abc");
  EXPECT_EQ(ToHex(sha.Finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, OfPiecesEqualsTheDigestOfTheWhole) {
  Sha256 pieces;
  pieces.Update("a");
  pieces.Update("");
  pieces.Update("bc");
  Sha256 whole;
  whole.Update("abc");
  EXPECT_EQ(pieces.Finish(), whole.Finish());
}

TEST(Sha256, TakesIntegersAsEightLittleEndianBytes) {
  Sha256 integer;
  integer.UpdateInteger(0x0807060504030201);
  Sha256 bytes;
  bytes.Update("\x01\x02\x03\x04\x05\x06\x07\x08");
  EXPECT_EQ(integer.Finish(), bytes.Finish());
}

}  // namespace
}  // namespace foretoken::base
