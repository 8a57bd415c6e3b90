// SPDX-License-Identifier: Apache-2.0
// The way of a trace context through a process. If this test fails, a trace breaks between two services, or goes on
// where an operator has forbidden it.
#include "common/tracing/tracer.h"

#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

constexpr char kCaller[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Tracer, TakesTheCallersContextAndPassesItOn) {
  const Tracer tracer;
  const std::optional<TraceContext> caller = tracer.Extract(kCaller, "a=1");
  ASSERT_TRUE(caller.has_value());
  EXPECT_EQ(caller->state, "a=1");
  EXPECT_EQ(tracer.Inject(tracer.Begin({.name = "call", .remote_parent = caller}).context), kCaller);
}

TEST(Tracer, WithoutPropagationNoContextComesInOrGoesOut) {
  Tracer tracer;
  tracer.StopPropagation();
  EXPECT_FALSE(tracer.Extract(kCaller).has_value());
  EXPECT_EQ(tracer.Inject(*ParseTraceContext(kCaller)), "");
}

}  // namespace
}  // namespace foretoken::tracing
