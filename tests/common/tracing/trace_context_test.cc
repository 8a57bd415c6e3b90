// SPDX-License-Identifier: Apache-2.0
// The headers of W3C Trace Context. If this test fails, traces of other services break in two at ours, or a hostile
// header becomes part of a trace.
#include "common/tracing/trace_context.h"

#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

constexpr char kSound[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ReadsAndWritesTheSameHeader) {
  const std::optional<TraceContext> context = ParseTraceContext(kSound, "vendor=1,other=a b");
  ASSERT_TRUE(context.has_value());
  EXPECT_TRUE(context->is_sampled());
  EXPECT_EQ(context->state, "vendor=1,other=a b");
  EXPECT_EQ(FormatTraceparent(*context), kSound);
  EXPECT_EQ(FormatTraceId(context->trace_id), "0af7651916cd43dd8448eb211c80319c");
}

TEST(TraceContext, AContextWithoutATraceHasNoHeader) { EXPECT_EQ(FormatTraceparent({}), ""); }

TEST(TraceContext, ALaterVersionMayHaveMoreFields) {
  EXPECT_TRUE(ParseTraceContext("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-brings"));
  EXPECT_FALSE(ParseTraceContext("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x"));
}

TEST(TraceContext, KeepsOnlyTheFlagsThatItKnows) {
  const auto context = ParseTraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff");
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->flags, TraceContext::kSampled | TraceContext::kRandom);
}

class BadTraceparent : public ::testing::TestWithParam<std::string> {};
TEST_P(BadTraceparent, IsNoTrace) { EXPECT_FALSE(ParseTraceContext(GetParam()).has_value()); }
INSTANTIATE_TEST_SUITE_P(
    Headers, BadTraceparent,
    ::testing::Values("", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",  // too short
                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",          // too long for version 00
                      "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",           // upper case
                      "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",           // no digit
                      "00-00000000000000000000000000000000-b7ad6b7169203331-01",           // no trace
                      "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",           // no span
                      "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",           // no version
                      "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                      std::string("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\0", 55)));

class BadTracestate : public ::testing::TestWithParam<std::string> {};
TEST_P(BadTracestate, IsLeftOutAndTheTraceGoesOn) {
  const std::optional<TraceContext> context = ParseTraceContext(kSound, GetParam());
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->state, "");
}
std::string Members(int num) {
  std::string state = "k0=v";
  for (int i = 1; i < num; ++i) state += ",k" + std::to_string(i) + "=v";
  return state;
}
INSTANTIATE_TEST_SUITE_P(Headers, BadTracestate,
                         ::testing::Values("no pair", "Upper=1", "=1", "a=", "a=b\x01", "a=b\r\n", "a=b,\vc=d",
                                           "a=" + std::string(511, 'x'), Members(33)));

TEST(TraceContext, BlanksAndTabsMayStandAroundAMember) {
  EXPECT_EQ(ParseTraceContext(kSound, " a=b\t, ,\tc=d ")->state, " a=b\t, ,\tc=d ");
}

TEST(TraceContext, KeepsAsManyMembersAsTheStandardAllows) {
  EXPECT_EQ(ParseTraceContext(kSound, Members(32))->state, Members(32));
}

}  // namespace
}  // namespace foretoken::tracing
