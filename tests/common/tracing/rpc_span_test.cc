// SPDX-License-Identifier: Apache-2.0
// The spans of remote calls. If this test fails, a failed call looks like a success, or an operator cannot see which
// server it went to.
#include "common/tracing/rpc_span.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::map<std::string, AttributeValue> Map(const Attributes& attributes) {
  std::map<std::string, AttributeValue> map;
  for (const Attribute& attribute : attributes) map.emplace(attribute.key, attribute.value);
  return map;
}

TEST(RpcSpan, TheServerIsAsTheClientNamesIt) {
  const auto check = [](const std::string& server, const std::string& address, std::optional<int64_t> port) {
    const auto attributes = Map(RpcAttributes({.method = "p.S/M", .server = server}));
    EXPECT_EQ(attributes.at("server.address"), AttributeValue(address)) << server;
    ASSERT_EQ(attributes.contains("server.port"), port.has_value()) << server;
    if (port.has_value()) {
      EXPECT_EQ(attributes.at("server.port"), AttributeValue(*port)) << server;
    }
  };
  check("llm.example:50051", "llm.example", 50051);
  check("llm.example", "llm.example", std::nullopt);
  check("[::1]:1", "::1", 1);
  check("dns:///llm.example:50051", "llm.example", 50051);
  check("dns://10.0.0.53/llm.example:50051", "llm.example", 50051);
  check("dns:llm.example:50051", "llm.example", 50051);
  check("dns://llm.example", "llm.example", std::nullopt);
  check("ipv4:10.0.0.1:7", "10.0.0.1", 7);
  check("ipv6:[::1]:7", "::1", 7);
  check("ipv4:10.0.0.1:7,10.0.0.2:7", "10.0.0.1:7,10.0.0.2:7", std::nullopt);
  check("unix:/run/llm.sock:1", "/run/llm.sock:1", std::nullopt);
  check(std::string(16 << 10, 'x') + ":1", std::string(256, 'x'), 1);
}

TEST(RpcSpan, ThePeerIsThereIfItHasAnAddress) {
  EXPECT_THAT(
      Map(RpcAttributes({.method = "p.S/M", .peer = "ipv6:%5B2001:db8::1%5D:4711"})),
      ElementsAre(Pair("network.peer.address", AttributeValue("2001:db8::1")),
                  Pair("network.peer.port", AttributeValue(int64_t{4711})), Pair("rpc.method", AttributeValue("p.S/M")),
                  Pair("rpc.system.name", AttributeValue("grpc"))));
  EXPECT_FALSE(Map(RpcAttributes({.method = "p.S/M", .peer = "inproc"})).contains("network.peer.address"));
}

TEST(RpcSpan, AStatusIsAnErrorOfTheClientAndSometimesOfTheServer) {
  const auto ended = [](SpanKind kind, const absl::Status& status) {
    Span span = {.kind = kind};
    SetRpcStatus(status, span);
    return span;
  };
  const absl::Status full = absl::ResourceExhaustedError("full"), broken = absl::InternalError("broken");
  EXPECT_THAT(Map(ended(SpanKind::kServer, full).attributes),
              ElementsAre(Pair("error.type", AttributeValue("RESOURCE_EXHAUSTED")),
                          Pair("rpc.response.status_code", AttributeValue("RESOURCE_EXHAUSTED"))));
  EXPECT_FALSE(ended(SpanKind::kServer, full).error.has_value());
  EXPECT_EQ(ended(SpanKind::kClient, full).error, "RESOURCE_EXHAUSTED") << "a message may quote the request";
  EXPECT_EQ(ended(SpanKind::kServer, broken).error, "broken");
  EXPECT_THAT(Map(ended(SpanKind::kClient, absl::OkStatus()).attributes),
              ElementsAre(Pair("rpc.response.status_code", AttributeValue("OK"))));
  EXPECT_FALSE(ended(SpanKind::kClient, absl::OkStatus()).error.has_value());
}

}  // namespace
}  // namespace foretoken::tracing
