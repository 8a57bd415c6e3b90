// SPDX-License-Identifier: Apache-2.0
// The OTEL_* variables. If this test fails, an operator's usual settings do not work here, or a bad one stops a server.
#include "common/tracing/settings.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using VariableMap = std::map<std::string, std::string>;

struct Read {
  explicit Read(const VariableMap& variables)
      : settings(ReadSettings(
            [&](const char* name) {
              const auto found = variables.find(name);
              return found == variables.end() ? nullptr : found->second.c_str();
            },
            "foretoken-verifier", &warnings)) {}

  std::string Resource(const std::string& key) const {
    const auto found = settings.resource.find(key);
    return found == settings.resource.end() ? "" : found->second;
  }

  std::vector<std::string> warnings;
  Settings settings;
};

TEST(TraceSettings, WithoutAVariableNothingIsExported) {
  const Read read(VariableMap{});
  EXPECT_EQ(read.settings.endpoint.url, "");
  EXPECT_EQ(read.settings.batch.max_queued_spans, 2048u);
  EXPECT_EQ(read.settings.batch.max_batch_spans, 512u);
  EXPECT_EQ(read.settings.batch.delay, absl::Seconds(5));
  EXPECT_EQ(read.settings.endpoint.timeout, absl::Seconds(10));
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST(TraceSettings, TheExporterWithoutAnEndpointMeansTheDefaultPort) {
  EXPECT_EQ(Read(VariableMap{{"OTEL_TRACES_EXPORTER", "otlp"}}).settings.endpoint.url, "http://localhost:4317");
  const Read http(VariableMap{{"OTEL_TRACES_EXPORTER", "otlp"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}});
  EXPECT_EQ(http.settings.endpoint.url, "http://localhost:4318/v1/traces");
}

TEST(TraceSettings, TheGeneralEndpointIsABaseForHttpAndTheTracesOwnIsNot) {
  const std::pair<std::string, std::string> http = {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"};
  EXPECT_EQ(Read(VariableMap{http, {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base"}}).settings.endpoint.url,
            "http://c:1/base/v1/traces");
  EXPECT_EQ(Read(VariableMap{http, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/base"}}).settings.endpoint.url,
            "http://c:1/base");
}

TEST(TraceSettings, ThePathOfTracesComesBeforeAQueryOrAFragment) {
  for (const auto& [base, url] : {std::pair("http://c:1/base?key=a/", "http://c:1/base/v1/traces?key=a/"),
                                  {"http://c:1/?key=a", "http://c:1/v1/traces?key=a"},
                                  {"http://c:1#part?", "http://c:1/v1/traces#part?"}}) {
    const Read read(
        VariableMap{{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", base}});
    EXPECT_EQ(read.settings.endpoint.url, url);
  }
}

TEST(TraceSettings, AnEndpointWithoutASchemeIsSecureUnlessSaidOtherwise) {
  EXPECT_EQ(Read(VariableMap{{"OTEL_EXPORTER_OTLP_ENDPOINT", "c:1"}}).settings.endpoint.url, "https://c:1");
  EXPECT_EQ(Read(VariableMap{{"OTEL_EXPORTER_OTLP_ENDPOINT", "c:1"}, {"OTEL_EXPORTER_OTLP_INSECURE", "true"}})
                .settings.endpoint.url,
            "http://c:1");
}

// As when a variable in the text is unset. With HTTP the path would otherwise be taken for the host.
TEST(TraceSettings, AnEndpointWithoutAHostOrWithABadPortIsIgnored) {
  for (const std::string protocol : {"grpc", "http/protobuf"}) {
    for (const std::string text : {"http://", "http:///base", "http://:4318", "https://me:secret@", "http://c:0",
                                   "http://c:99999", "http://c:x/base", "http://c:"}) {
      const Read read(VariableMap{{"OTEL_EXPORTER_OTLP_PROTOCOL", protocol}, {"OTEL_EXPORTER_OTLP_ENDPOINT", text}});
      EXPECT_EQ(read.settings.endpoint.url, "") << protocol << " " << text;
      EXPECT_THAT(read.warnings, ElementsAre(HasSubstr("with a port of 1 to 65535"))) << text;
    }
  }
}

TEST(TraceSettings, AnEndpointForGrpcHasAPort) {
  const auto url = [](const std::string& text) {
    return Read(VariableMap{{"OTEL_EXPORTER_OTLP_ENDPOINT", text}}).settings.endpoint.url;
  };
  EXPECT_EQ(url("http://collector"), "http://collector:4317");
  EXPECT_EQ(url("http://[::1]/"), "http://[::1]:4317/");
  EXPECT_EQ(url("https://me:secret@collector"), "https://me:secret@collector:4317");
  EXPECT_EQ(url("http://collector:1"), "http://collector:1");
}

TEST(TraceSettings, NamesOfChoicesMayHaveCapitals) {
  const Read read(VariableMap{{"OTEL_TRACES_EXPORTER", "OTLP"},
                              {"OTEL_EXPORTER_OTLP_PROTOCOL", "HTTP/Protobuf"},
                              {"OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"},
                              {"OTEL_TRACES_SAMPLER", "ALWAYS_OFF"},
                              {"OTEL_PROPAGATORS", "None"}});
  EXPECT_THAT(read.warnings, IsEmpty());
  EXPECT_EQ(read.settings.endpoint.url, "http://localhost:4318/v1/traces");
  EXPECT_TRUE(read.settings.endpoint.compresses);
  EXPECT_FALSE(read.settings.sampler.Samples(std::nullopt, TraceId{}));
  EXPECT_FALSE(read.settings.propagates);
  EXPECT_EQ(Read(VariableMap{{"OTEL_TRACES_EXPORTER", "None"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"}})
                .settings.endpoint.url,
            "");
}

TEST(TraceSettings, CanBeSwitchedOff) {
  const std::pair<std::string, std::string> endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"};
  EXPECT_EQ(Read(VariableMap{endpoint, {"OTEL_SDK_DISABLED", "TRUE"}}).settings.endpoint.url, "");
  EXPECT_EQ(Read(VariableMap{endpoint, {"OTEL_TRACES_EXPORTER", "none"}}).settings.endpoint.url, "");
  EXPECT_EQ(Read(VariableMap{endpoint, {"OTEL_SDK_DISABLED", ""}}).settings.endpoint.url,
            "http://c:1");  // empty is unset
}

TEST(TraceSettings, TheConsoleNeedsNoEndpoint) {
  const Read read(VariableMap{{"OTEL_TRACES_EXPORTER", "console"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"}});
  EXPECT_TRUE(read.settings.writes_to_console);
  EXPECT_EQ(read.settings.endpoint.url, "");
  EXPECT_THAT(read.warnings, IsEmpty());
  EXPECT_FALSE(
      Read(VariableMap{{"OTEL_TRACES_EXPORTER", "console"}, {"OTEL_SDK_DISABLED", "true"}}).settings.writes_to_console);
}

TEST(TraceSettings, ContextsPropagateUnlessThePropagatorsLeaveThemOut) {
  const auto propagates = [](const std::string& value) {
    const Read read(VariableMap{{"OTEL_PROPAGATORS", value}});
    EXPECT_THAT(read.warnings, IsEmpty());
    return read.settings.propagates;
  };
  EXPECT_TRUE(propagates(""));
  EXPECT_TRUE(propagates("tracecontext,baggage"));
  EXPECT_TRUE(propagates("baggage, tracecontext"));
  EXPECT_FALSE(propagates("none"));
  EXPECT_FALSE(propagates("baggage"));
}

TEST(TraceSettings, AConfigurationFileIsNotReadAndTheWarningSaysSo) {
  const Read read(VariableMap{{"OTEL_CONFIG_FILE", "/etc/otel.yaml"}});
  EXPECT_THAT(read.warnings, ElementsAre(HasSubstr("OTEL_CONFIG_FILE: ")));
}

TEST(TraceSettings, ReadsTheRestOfTheExporterAndTheTracesOwnVariableWins) {
  const Read read(VariableMap{{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:1"},
                              {"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, b = 2"},
                              {"OTEL_EXPORTER_OTLP_COMPRESSION", "none"},
                              {"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"},
                              {"OTEL_EXPORTER_OTLP_TIMEOUT", "2000"},
                              {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "3000"},
                              {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"},
                              {"OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key.pem"},
                              {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/cert.pem"}});
  const Endpoint& endpoint = read.settings.endpoint;
  EXPECT_THAT(endpoint.headers, ElementsAre(Pair("authorization", "Bearer x"), Pair("b", "2")));
  EXPECT_TRUE(endpoint.compresses);
  EXPECT_EQ(endpoint.timeout, absl::Seconds(3));
  EXPECT_EQ(endpoint.tls.ca, "/ca.pem");
  EXPECT_EQ(endpoint.tls.key, "/key.pem");
  EXPECT_EQ(endpoint.tls.certificate, "/cert.pem");
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST(TraceSettings, AWarningNamesTheVariableThatIsAtFault) {
  const Read own(
      VariableMap{{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}, {"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "lz"}});
  EXPECT_THAT(own.warnings, ElementsAre(HasSubstr("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: expected gzip or none")));
  const Read general(VariableMap{{"OTEL_EXPORTER_OTLP_COMPRESSION", "lz"}});
  EXPECT_THAT(general.warnings, ElementsAre(HasSubstr("OTEL_EXPORTER_OTLP_COMPRESSION: expected gzip or none")));
}

TEST(TraceSettings, AnUnusableVariableOfTheTracesLeavesTheGeneralOne) {
  const Read read(VariableMap{{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"},
                              {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
                              {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://own"},
                              {"OTEL_EXPORTER_OTLP_ENDPOINT", "general:1"},
                              {"OTEL_EXPORTER_OTLP_TRACES_INSECURE", "maybe"},
                              {"OTEL_EXPORTER_OTLP_INSECURE", "true"},
                              {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "no pair"},
                              {"OTEL_EXPORTER_OTLP_HEADERS", "a=1"},
                              {"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "lz"},
                              {"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"},
                              {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon"},
                              {"OTEL_EXPORTER_OTLP_TIMEOUT", "2000"}});
  const Endpoint& endpoint = read.settings.endpoint;
  EXPECT_EQ(endpoint.protocol, Protocol::kHttpProtobuf);
  EXPECT_EQ(endpoint.url, "http://general:1/v1/traces");
  EXPECT_THAT(endpoint.headers, ElementsAre(Pair("a", "1")));
  EXPECT_TRUE(endpoint.compresses);
  EXPECT_EQ(endpoint.timeout, absl::Seconds(2));
  EXPECT_EQ(read.warnings.size(), 6u);
  for (const std::string& warning : read.warnings) EXPECT_THAT(warning, HasSubstr("_OTLP_TRACES_"));
}

TEST(TraceSettings, HeadersThatHttpForbidsLeaveTheGeneralOnes) {
  const Read read(
      VariableMap{{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "key=caf%C3%A9"}, {"OTEL_EXPORTER_OTLP_HEADERS", "a=1"}});
  EXPECT_THAT(read.settings.endpoint.headers, ElementsAre(Pair("a", "1")));
  EXPECT_THAT(read.warnings, ElementsAre(HasSubstr("OTEL_EXPORTER_OTLP_TRACES_HEADERS: ")));
}

TEST(TraceSettings, ReadsBatchesLimitsAndTheSampler) {
  const Read read(VariableMap{{"OTEL_BSP_SCHEDULE_DELAY", "100"},
                              {"OTEL_BSP_EXPORT_TIMEOUT", "200"},
                              {"OTEL_BSP_MAX_QUEUE_SIZE", "10"},
                              {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "20"},
                              {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3"},
                              {"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "4"},
                              {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "5"},
                              {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "6"},
                              {"OTEL_SPAN_LINK_COUNT_LIMIT", "7"},
                              {"OTEL_TRACES_SAMPLER", "always_off"}});
  EXPECT_EQ(read.settings.batch.delay, absl::Milliseconds(100));
  EXPECT_EQ(read.settings.batch.export_timeout, absl::Milliseconds(200));
  EXPECT_EQ(read.settings.batch.max_queued_spans, 10u);
  EXPECT_EQ(read.settings.batch.max_batch_spans, 10u);  // a batch is no larger than the queue
  EXPECT_EQ(read.settings.limits.max_attributes, 3u);
  EXPECT_EQ(read.settings.limits.max_link_attributes, 4u);
  EXPECT_EQ(read.settings.limits.max_value_characters, 6u);
  EXPECT_EQ(read.settings.limits.max_links, 7u);
  TraceId high;
  high.fill(0xff);
  EXPECT_FALSE(read.settings.sampler.Samples(std::nullopt, high));
}

TEST(TraceSettings, TheSamplersArgumentIsItsRatio) {
  TraceId low = {}, middle = {}, high;  // by their last seven bytes
  middle[9] = 0x80;
  high.fill(0xff);
  const auto samples = [&](const std::string& ratio) {
    const Read read(VariableMap{{"OTEL_TRACES_SAMPLER", "traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", ratio}});
    EXPECT_EQ(read.warnings.size(), ratio == "often" ? 1u : 0u);
    std::vector<bool> samples;
    for (const TraceId& id : {low, middle, high}) samples.push_back(read.settings.sampler.Samples(std::nullopt, id));
    return samples;
  };
  EXPECT_THAT(samples("0.05"), ElementsAre(false, false, true));
  EXPECT_THAT(samples("0.5"), ElementsAre(false, true, true));
  EXPECT_THAT(samples("0"), ElementsAre(false, false, false));
  EXPECT_THAT(samples("often"), ElementsAre(true, true, true)) << "a ratio that cannot be read counts as 1";
}

TEST(TraceSettings, ATimeoutOf0IsNoLimitAndABatchHasAtMostAnHour) {
  const Read general(VariableMap{{"OTEL_EXPORTER_OTLP_TIMEOUT", "0"}, {"OTEL_BSP_EXPORT_TIMEOUT", "0"}});
  EXPECT_EQ(general.settings.endpoint.timeout, absl::InfiniteDuration());
  EXPECT_EQ(general.settings.batch.export_timeout, absl::Hours(1));
  EXPECT_THAT(general.warnings, IsEmpty());
  const Read own(VariableMap{{"OTEL_EXPORTER_OTLP_TIMEOUT", "2000"},
                             {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0"},
                             {"OTEL_BSP_EXPORT_TIMEOUT", "9223372036854775807"}});
  EXPECT_EQ(own.settings.endpoint.timeout, absl::InfiniteDuration());
  EXPECT_EQ(own.settings.batch.export_timeout, absl::Hours(1));
  EXPECT_THAT(own.warnings, IsEmpty());
}

TEST(TraceSettings, TheServicesNameHasAnOrder) {
  EXPECT_EQ(Read(VariableMap{}).Resource("service.name"), "foretoken-verifier");
  const std::pair<std::string, std::string> attributes = {"OTEL_RESOURCE_ATTRIBUTES",
                                                          "service.name=a,k8s.pod.name=p%2C1,telemetry.sdk.name=x"};
  const Read read(VariableMap{attributes});
  EXPECT_EQ(read.Resource("service.name"), "a");
  EXPECT_EQ(read.Resource("k8s.pod.name"), "p,1");
  EXPECT_EQ(read.Resource("telemetry.sdk.name"), "foretoken");
  EXPECT_EQ(Read(VariableMap{attributes, {"OTEL_SERVICE_NAME", "b"}}).Resource("service.name"), "b");
}

class BadVariable : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};
TEST_P(BadVariable, IsIgnoredAndNamed) {
  const Read read(VariableMap{GetParam()});
  ASSERT_THAT(read.warnings, ElementsAre(HasSubstr(GetParam().first)));
  const Settings defaults = Read(VariableMap{}).settings;
  EXPECT_EQ(read.settings.batch.max_queued_spans, defaults.batch.max_queued_spans);
  EXPECT_EQ(read.settings.endpoint.timeout, defaults.endpoint.timeout);
  EXPECT_TRUE(read.settings.propagates);
  EXPECT_THAT(read.settings.endpoint.headers, IsEmpty());
  EXPECT_EQ(read.settings.resource.size(), defaults.resource.size());
  EXPECT_EQ(read.Resource("service.name"), "foretoken-verifier");
}
INSTANTIATE_TEST_SUITE_P(
    VariableMap, BadVariable,
    ::testing::Values(std::pair("OTEL_BSP_MAX_QUEUE_SIZE", "0"), std::pair("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
                      std::pair("OTEL_EXPORTER_OTLP_TIMEOUT", "-1"), std::pair("OTEL_TRACES_SAMPLER", "sometimes"),
                      std::pair("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), std::pair("OTEL_SDK_DISABLED", "yes"),
                      std::pair("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://c"),
                      std::pair("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:99999"),
                      std::pair("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:"),
                      std::pair("OTEL_EXPORTER_OTLP_HEADERS", "no pair"),
                      std::pair("OTEL_EXPORTER_OTLP_HEADERS", "a=%4"), std::pair("OTEL_EXPORTER_OTLP_HEADERS", "a=%+4"),
                      std::pair("OTEL_RESOURCE_ATTRIBUTES", "a=%FF"), std::pair("OTEL_RESOURCE_ATTRIBUTES", "\xFF=a"),
                      std::pair("OTEL_SERVICE_NAME", "caf\xE9"),
                      std::pair("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer abc=="),
                      std::pair("OTEL_EXPORTER_OTLP_HEADERS", "key=caf%C3%A9"),
                      std::pair("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"), std::pair("OTEL_TRACES_EXPORTER", "zipkin"),
                      std::pair("OTEL_PROPAGATORS", "b3"), std::pair("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "long")));

TEST(TraceSettings, AWarningDoesNotShowHeaders) {
  const Read read(VariableMap{{"OTEL_EXPORTER_OTLP_HEADERS", "secret"}});
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_EQ(read.warnings[0].find("\"secret\""), std::string::npos);
}

}  // namespace
}  // namespace foretoken::tracing
