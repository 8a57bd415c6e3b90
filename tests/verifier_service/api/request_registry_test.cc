// SPDX-License-Identifier: Apache-2.0
// Request ids in use, per tenant. If this test fails, a tenant can see, block or abort another tenant's request, a
// waiting call cannot be aborted, or an id stays in use after its call.
#include "verifier_service/api/request_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RequestRegistry, AClaimedNameIsInUseUntilItsRegistrationEnds) {
  RequestRegistry registry;
  const RequestName name = {.tenant = "a", .request_id = "1"};
  RequestRegistry::Registration next = registry.Register(name, 8);
  {
    RequestRegistry::Registration held = registry.Register(name, 7);
    ASSERT_TRUE(held.Claim().ok());
    RequestRegistry::Registration moved = std::move(held);
    EXPECT_TRUE(moved.Claim().ok()) << "it has the name already";
    const absl::Status refused = next.Claim();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(refused.message(), "request_id: \"1\" is in use");
    EXPECT_EQ(base::ReasonOf(refused), "REQUEST_ID_IN_USE");
  }
  EXPECT_TRUE(next.Claim().ok());
}

TEST(RequestRegistry, EveryCallIsFoundFromItsRegistrationOn) {
  RequestRegistry registry;
  const RequestName name = {.tenant = "a", .request_id = "1"};
  EXPECT_THAT(registry.Find(name), IsEmpty());
  {
    RequestRegistry::Registration running = registry.Register(name, 7);
    ASSERT_TRUE(running.Claim().ok());
    {
      const RequestRegistry::Registration waiting = registry.Register(name, 8);
      EXPECT_THAT(registry.Find(name), ElementsAre(7, 8));
    }
    EXPECT_THAT(registry.Find(name), ElementsAre(7));
    RequestRegistry::Registration other = registry.Register(name, 9);
    EXPECT_FALSE(other.Claim().ok()) << "a waiting call that has gone does not free the id";
  }
  EXPECT_THAT(registry.Find(name), IsEmpty());
}

TEST(RequestRegistry, TenantsDoNotSeeEachOthersIds) {
  RequestRegistry registry;
  RequestRegistry::Registration first = registry.Register({.tenant = "a", .request_id = "bc"}, 1);
  ASSERT_TRUE(first.Claim().ok());
  EXPECT_THAT(registry.Find({.tenant = "ab", .request_id = "c"}), IsEmpty());
  RequestRegistry::Registration second = registry.Register({.tenant = "b", .request_id = "bc"}, 2);
  EXPECT_TRUE(second.Claim().ok());
  EXPECT_THAT(registry.Find({.tenant = "a", .request_id = "bc"}), ElementsAre(1));
  EXPECT_THAT(registry.Find({.tenant = "b", .request_id = "bc"}), ElementsAre(2));
}

}  // namespace
}  // namespace foretoken::verifier
