// SPDX-License-Identifier: Apache-2.0
// An owner that waits for its users. If this test fails, services free at their end what their threads still use.
#include "common/base/awaited_shares.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

namespace foretoken::base {
namespace {

TEST(AwaitedShares, WithoutSharesTheOwnerEndsAtOnce) {
  AwaitedShares uses;
  uses.Share();
}

TEST(AwaitedShares, TheOwnerWaitsForTheLastShare) {
  for (int round = 0; round < 100; ++round) {
    auto uses = std::make_optional<AwaitedShares>();
    auto value = std::make_unique<int>(0);  // a thread that outlived the owner would write freed memory
    const auto use = [&value](std::shared_ptr<const void> share) {
      std::this_thread::yield();
      ++*value;
      share.reset();
    };
    std::thread first(use, uses->Share());
    first.join();
    std::thread second(use, uses->Share());
    uses.reset();
    EXPECT_EQ(*value, 2);
    value.reset();
    second.join();
  }
}

}  // namespace
}  // namespace foretoken::base
