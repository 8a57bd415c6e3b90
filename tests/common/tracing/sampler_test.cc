// SPDX-License-Identifier: Apache-2.0
// The choice of traces. If this test fails, a trace has holes, or more traces are recorded than the operator asked for.
#include "common/tracing/sampler.h"

#include <random>

#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

TraceId RandomId(std::mt19937_64& random) {
  TraceId id;
  for (uint8_t& byte : id) byte = static_cast<uint8_t>(random());
  return id;
}

std::optional<TraceContext> Caller(bool is_sampled) {
  TraceContext caller;
  caller.trace_id[0] = caller.span_id[0] = 1;
  caller.flags = is_sampled ? TraceContext::kSampled : 0;
  return caller;
}

TEST(Sampler, FollowsItsCallerWhenParentBased) {
  const Sampler none = Sampler::Parse("parentbased_always_off", "").value(), all;
  EXPECT_TRUE(none.Samples(Caller(true), {}));
  EXPECT_FALSE(none.Samples(std::nullopt, {}));
  EXPECT_FALSE(all.Samples(Caller(false), {}));
  EXPECT_TRUE(all.Samples(std::nullopt, {}));
}

TEST(Sampler, DecidesAloneOtherwise) {
  EXPECT_TRUE(Sampler::Parse("always_on", "").value().Samples(Caller(false), {}));
  EXPECT_FALSE(Sampler::Parse("always_off", "").value().Samples(Caller(true), {}));
}

TEST(Sampler, SamplesItsPartOfTheTracesAndALowerRatioAPartOfThose) {
  const Sampler fifth = Sampler::Parse("traceidratio", "0.2").value();
  const Sampler tenth = Sampler::Parse("traceidratio", "0.1").value();
  std::mt19937_64 random(7);
  int num_fifth = 0, num_tenth = 0;
  constexpr int kNumTraces = 20'000;
  for (int i = 0; i < kNumTraces; ++i) {
    const TraceId id = RandomId(random);
    num_fifth += fifth.Samples(std::nullopt, id);
    num_tenth += tenth.Samples(std::nullopt, id);
    EXPECT_LE(tenth.Samples(std::nullopt, id), fifth.Samples(std::nullopt, id));
  }
  EXPECT_NEAR(num_fifth, kNumTraces * 0.2, 300);  // 5 standard deviations
  EXPECT_NEAR(num_tenth, kNumTraces * 0.1, 220);
}

TEST(Sampler, TheRatioHasItsEnds) {
  TraceId low{}, high;
  high.fill(0xff);
  EXPECT_FALSE(Sampler::Parse("traceidratio", "0").value().Samples(std::nullopt, high));
  EXPECT_TRUE(Sampler::Parse("traceidratio", "1").value().Samples(std::nullopt, low));
  EXPECT_TRUE(Sampler::Parse("traceidratio", "").value().Samples(std::nullopt, low));
}

TEST(Sampler, RefusesOtherNamesAndRatios) {
  EXPECT_FALSE(Sampler::Parse("jaeger_remote", "").ok());
  EXPECT_FALSE(Sampler::Parse("", "").ok());
  for (const char* ratio : {"-0.1", "1.1", "nan", "x", "0.5x"})
    EXPECT_FALSE(Sampler::Parse("traceidratio", ratio).ok());
}

}  // namespace
}  // namespace foretoken::tracing
