// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/anchors.h"

#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

TEST(HasInnerAnchor, AnchorsAtTheEndsAreNotInside) {
  for (const char* const pattern : {"", "a", "^a$", "^a|b$", "^a$|^b$", "(^a|b$)", "(?:^a)b", "a(b$)", "((^a))", "[^a]",
                                    "a[$^]b", "a\\^b", "a\\$b", "[\\]^]a", "^$"}) {
    EXPECT_FALSE(HasInnerAnchor(pattern)) << pattern;
  }
}

TEST(HasInnerAnchor, OtherAnchorsAre) {
  for (const char* const pattern :
       {"a^b", "a$b", "a(^b)", "(a$)b", "(a|^b)", "(a$|b)", "a(b|^c)", "a^", "$a", "[a]^b"}) {
    EXPECT_TRUE(HasInnerAnchor(pattern)) << pattern;
  }
}

}  // namespace
}  // namespace foretoken::verifier
