// SPDX-License-Identifier: Apache-2.0
// Request ids in use, per tenant. If this test fails, a tenant can see, block or abort another tenant's request, or an
// id stays in use after its call.
#include "verifier_service/api/request_registry.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

TEST(RequestRegistry, ANameIsInUseUntilItsRegistrationEnds) {
  RequestRegistry registry;
  const RequestName name = {.tenant = "a", .request_id = "1"};
  {
    absl::StatusOr<RequestRegistry::Registration> held = registry.Register(name, 7);
    ASSERT_TRUE(held.ok());
    const RequestRegistry::Registration moved = *std::move(held);
    EXPECT_EQ(registry.Find(name), 7);
    const absl::Status refused = registry.Register(name, 8).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(refused.message(), "request_id: \"1\" is in use");
    EXPECT_EQ(base::ReasonOf(refused), "REQUEST_ID_IN_USE");
    EXPECT_EQ(registry.Find(name), 7) << "a refusal changes no registration";
  }
  EXPECT_EQ(registry.Find(name), std::nullopt);
  EXPECT_TRUE(registry.Register(name, 9).ok());
}

TEST(RequestRegistry, TenantsDoNotSeeEachOthersIds) {
  RequestRegistry registry;
  const auto first = registry.Register({.tenant = "a", .request_id = "bc"}, 1);
  EXPECT_EQ(registry.Find({.tenant = "ab", .request_id = "c"}), std::nullopt);
  const auto second = registry.Register({.tenant = "b", .request_id = "bc"}, 2);
  EXPECT_TRUE(second.ok());
  EXPECT_EQ(registry.Find({.tenant = "a", .request_id = "bc"}), 1);
  EXPECT_EQ(registry.Find({.tenant = "b", .request_id = "bc"}), 2);
}

}  // namespace
}  // namespace foretoken::verifier
