// SPDX-License-Identifier: Apache-2.0
// The tracing of a whole process. If this test fails, a mistake in a variable for traces ends a service.
#include "common/tracing/process_tracing.h"

#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"

namespace foretoken::tracing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Sets variables of this process, and takes them away again.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  ~Variables() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }

 private:
  const std::map<std::string, std::string> variables_;
};

bool Records(const ProcessTracing& tracing) {
  Span span = tracing.tracer().Begin({.name = "load"});
  return tracing.tracer().IsRecorded(span);
}

TEST(ProcessTracing, WithFilesThatCannotBeReadTheProcessGoesOnWithoutTraces) {
  for (const char* protocol : {"grpc", "http/protobuf"}) {
    const Variables variables({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1"},
                               {"OTEL_EXPORTER_OTLP_PROTOCOL", protocol},
                               {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem"}});
    const testing::CapturedLog log;
    telemetry::Metrics metrics;
    const std::unique_ptr<ProcessTracing> tracing = ProcessTracing::Start("test", metrics);
    EXPECT_FALSE(Records(*tracing)) << protocol;
    EXPECT_THAT(log.Lines(), Contains(AllOf(HasSubstr("warning"), HasSubstr("OTEL_EXPORTER_OTLP_CERTIFICATE"),
                                            HasSubstr("/no/such.pem"))));
  }
}

TEST(ProcessTracing, FilesMeanNothingToAPlainEndpoint) {
  for (const char* protocol : {"grpc", "http/protobuf"}) {
    const Variables variables({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"},
                               {"OTEL_EXPORTER_OTLP_PROTOCOL", protocol},
                               {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem"}});
    const testing::CapturedLog log;
    telemetry::Metrics metrics;
    const std::unique_ptr<ProcessTracing> tracing = ProcessTracing::Start("test", metrics);
    EXPECT_TRUE(Records(*tracing)) << protocol;
    EXPECT_THAT(log.Lines(), Each(Not(HasSubstr("warning"))));
  }
}

TEST(ProcessTracing, ThePasswordOfACollectorIsNotLogged) {
  const std::pair<const char*, const char*> urls[] = {
      {"http://me:secret@127.0.0.1:1", "http://127.0.0.1:1/v1/traces"},
      {"http://me:s@ecret@127.0.0.1:1/a", "http://127.0.0.1:1/a/v1/traces"},
      {"http://127.0.0.1:1/?key=secret", "http://127.0.0.1:1/v1/traces"},
      {"http://127.0.0.1:1#secret", "http://127.0.0.1:1/v1/traces"},
      {"http://127.0.0.1:1/?mail=me@secret", "http://..."},
      {"http://me:12/cret@127.0.0.1:1", "http://..."},
      {"http://me:12?cret@127.0.0.1:1", "http://..."},
      {"http://me:12#cret@127.0.0.1:1", "http://..."},
      {"http://me:se/cret@127.0.0.1:1", "another text"}};
  for (const auto& [url, shown] : urls) {
    const Variables variables({{"OTEL_EXPORTER_OTLP_ENDPOINT", url}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}});
    const testing::CapturedLog log;
    telemetry::Metrics metrics;
    const std::unique_ptr<ProcessTracing> tracing = ProcessTracing::Start("test", metrics);
    EXPECT_THAT(log.Lines(), Contains(HasSubstr(absl::StrCat("\"", shown, "\"")))) << url;
    EXPECT_THAT(log.Lines(), Each(AllOf(Not(HasSubstr("cret")), Not(HasSubstr("me:"))))) << url;
  }
}

}  // namespace
}  // namespace foretoken::tracing
