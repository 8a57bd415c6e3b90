// SPDX-License-Identifier: Apache-2.0
// Spans as OTLP. If this test fails, collectors show wrong times, parents or attributes, or refuse our batches.
#include "common/tracing/otlp.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

TraceContext Context(uint8_t id) {
  TraceContext context;
  context.trace_id.fill(id);
  context.span_id.fill(id);
  context.flags = TraceContext::kSampled;
  context.state = "k=v";
  return context;
}

otlp::Span Convert(const Span& span, const SpanLimits& limits = {}) {
  otlp::Span out;
  EXPECT_TRUE(out.ParseFromString(EncodeSpan(span, limits)));
  return out;
}

TEST(Otlp, ASpanKeepsItsIdentityTimesAndKind) {
  const otlp::Span span = Convert({.context = Context(7),
                                   .parent = Context(5).span_id,
                                   .has_remote_parent = true,
                                   .name = "call",
                                   .kind = SpanKind::kServer,
                                   .begin = absl::FromUnixNanos(1'000),
                                   .end = absl::FromUnixNanos(3'000)});
  EXPECT_EQ(span.trace_id(), std::string(16, 7));
  EXPECT_EQ(span.span_id(), std::string(8, 7));
  EXPECT_EQ(span.parent_span_id(), std::string(8, 5));
  EXPECT_EQ(span.trace_state(), "k=v");
  EXPECT_EQ(span.name(), "call");
  EXPECT_EQ(span.kind(), 2);
  EXPECT_EQ(span.start_time_unix_nano(), 1'000u);
  EXPECT_EQ(span.end_time_unix_nano(), 3'000u);
  EXPECT_EQ(span.flags(), 0x301u);
  EXPECT_FALSE(span.has_status());
}

TEST(Otlp, ARootHasNoParentAndAnEndIsNeverBeforeTheBegin) {
  const otlp::Span span =
      Convert({.context = Context(1), .begin = absl::FromUnixNanos(5), .end = absl::FromUnixNanos(4), .error = "bad"});
  EXPECT_EQ(span.parent_span_id(), "");
  EXPECT_EQ(span.flags(), 0x101u);
  EXPECT_EQ(span.end_time_unix_nano(), 5u);
  EXPECT_EQ(span.status().code(), 2);
  EXPECT_EQ(span.status().message(), "bad");
}

TEST(Otlp, AttributesOfEveryTypeArrive) {
  const otlp::Span span = Convert({.context = Context(1),
                                   .attributes = {{"b", true},
                                                  {"i", int64_t{-1}},
                                                  {"d", 0.5},
                                                  {"s", "text"},
                                                  {"is", std::vector<int64_t>{1, 2}},
                                                  {"none", std::vector<std::string>{}}}});
  ASSERT_EQ(span.attributes_size(), 6);
  EXPECT_TRUE(span.attributes(0).value().bool_value());
  EXPECT_EQ(span.attributes(1).value().int_value(), -1);
  EXPECT_EQ(span.attributes(2).value().double_value(), 0.5);
  EXPECT_EQ(span.attributes(3).value().string_value(), "text");
  EXPECT_EQ(span.attributes(4).value().array_value().values(1).int_value(), 2);
  EXPECT_TRUE(span.attributes(5).value().has_array_value());
}

TEST(Otlp, WhatIsBeyondTheLimitsIsCounted) {
  Span span = {.context = Context(1)};
  for (int i = 0; i < 3; ++i) {
    span.attributes.push_back({"a", int64_t{i}});
    span.links.push_back({.context = Context(2)});
  }
  const otlp::Span cut = Convert(span, {.max_attributes = 2, .max_links = 0});
  EXPECT_EQ(cut.attributes_size(), 2);
  EXPECT_EQ(cut.dropped_attributes_count(), 1u);
  EXPECT_EQ(cut.links_size(), 0);
  EXPECT_EQ(cut.dropped_links_count(), 3u);
}

TEST(Otlp, TextsBeyondTheLimitAreCutBetweenCharacters) {
  Span span = {.context = Context(1), .attributes = {{"s", "h\u00e9llo"}, {"l", std::vector<std::string>{"abc", "a"}}}};
  span.links.push_back({.context = Context(2), .attributes = {{"a", "abc"}, {"b", "b"}}});
  const otlp::Span cut = Convert(span, {.max_link_attributes = 1, .max_value_characters = 2});
  EXPECT_EQ(cut.attributes(0).value().string_value(), "h\u00e9");
  EXPECT_EQ(cut.attributes(1).value().array_value().values(0).string_value(), "ab");
  EXPECT_EQ(cut.attributes(1).value().array_value().values(1).string_value(), "a");
  ASSERT_EQ(cut.links(0).attributes_size(), 1);
  EXPECT_EQ(cut.links(0).attributes(0).value().string_value(), "ab");
  EXPECT_EQ(cut.links(0).dropped_attributes_count(), 1u);
  EXPECT_EQ(Convert(span).attributes(0).value().string_value(), "h\u00e9llo");
}

TEST(Otlp, NoTextHasBytesThatAreNotUtf8) {
  const Span span = {.context = Context(1),
                     .name = "a\xff",
                     .attributes = {{"server.address", "\xc3(\xe2\x82"}, {"l", std::vector<std::string>{"\xff\xff"}}},
                     .links = {{.context = Context(2), .attributes = {{"a", "h\u00e9\xc3"}}}},
                     .error = "\xff?"};
  const otlp::Span sent = Convert(span, {.max_value_characters = 2});
  EXPECT_EQ(sent.name(), "a\ufffd");
  EXPECT_EQ(sent.attributes(0).value().string_value(), "\ufffd(");
  EXPECT_EQ(sent.attributes(1).value().array_value().values(0).string_value(), "\ufffd\ufffd");
  EXPECT_EQ(sent.links(0).attributes(0).value().string_value(), "h\u00e9");
  EXPECT_EQ(sent.status().message(), "\ufffd?");
}

TEST(Otlp, ARequestHasItsProcesssAttributesAndTakesTheSpans) {
  std::vector<std::string> spans = {EncodeSpan({.name = "a"}, {}), EncodeSpan({.name = "b"}, {})};
  const otlp::ExportTraceServiceRequest request = MakeRequest(spans, {{"host.name", "h\xff"}});
  const otlp::ResourceSpans& of_process = request.resource_spans(0);
  EXPECT_EQ(of_process.resource().attributes(0).key(), "host.name");
  EXPECT_EQ(of_process.resource().attributes(0).value().string_value(), "h\ufffd");
  EXPECT_EQ(of_process.scope_spans(0).scope().name(), "foretoken");
  ASSERT_EQ(of_process.scope_spans(0).spans_size(), 2);
  otlp::Span second;
  ASSERT_TRUE(second.ParseFromString(of_process.scope_spans(0).spans(1)));
  EXPECT_EQ(second.name(), "b");
  EXPECT_EQ(spans, std::vector<std::string>(2));
  EXPECT_TRUE(otlp::ExportTraceServiceRequest().ParseFromString(request.SerializeAsString()));
}

// The thread's last span had more.
TEST(Otlp, ASpanHasNothingOfTheSpanBefore) {
  EncodeSpan({.context = Context(1),
              .parent = Context(5).span_id,
              .name = "a",
              .attributes = {{"s", "text"}},
              .links = {{.context = Context(2), .attributes = {{"a", "abc"}}}},
              .error = "bad"},
             {.max_attributes = 0});
  const otlp::Span span = Convert({.context = Context(1), .name = "b", .attributes = {{"i", int64_t{1}}}});
  EXPECT_EQ(span.parent_span_id(), "");
  ASSERT_EQ(span.attributes_size(), 1);
  EXPECT_EQ(span.attributes(0).key(), "i");
  EXPECT_TRUE(span.attributes(0).value().has_int_value());
  EXPECT_EQ(span.dropped_attributes_count(), 0u);
  EXPECT_EQ(span.links_size(), 0);
  EXPECT_FALSE(span.has_status());
}

TEST(Otlp, ALinkSaysWhetherItsSpanIsInAnotherProcess) {
  const otlp::Span span = Convert(
      {.context = Context(1), .links = {{.context = Context(2)}, {.context = Context(3), .is_remote = true}}}, {});
  EXPECT_EQ(span.links(0).flags() & 0x300, 0x100u);
  EXPECT_EQ(span.links(1).flags() & 0x300, 0x300u);
}

}  // namespace
}  // namespace foretoken::tracing
