// SPDX-License-Identifier: Apache-2.0
// The system's clock jumps by an hour while the services run and their connections last: gRPC's own waits, for example
// between attempts to connect, follow that clock in some versions. If this test fails, a timeout, a pause or a period
// follows that clock, so it ends too early or not for an hour.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/trace_collector.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

// The clock of the processes that load the library (preload/clock_shift.cc).
class ShiftedClock {
 public:
  ShiftedClock() { Set(0); }
  std::vector<std::string> Environment() const {
    return {std::string("LD_PRELOAD=") + FORETOKEN_CLOCK_SHIFT, "CLOCK_SHIFT_FILE=" + path()};
  }
  // `foretoken ARGUMENTS` with this clock and these variables.
  std::vector<std::string> Command(const std::vector<std::string>& arguments,
                                   const std::vector<std::string>& variables = {}) const {
    std::vector<std::string> command = Environment();
    command.insert(command.begin(), "/usr/bin/env");
    command.insert(command.end(), variables.begin(), variables.end());
    command.push_back(absl::StrCat(FORETOKEN_BINARY_DIR, "/foretoken"));
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  void Set(double seconds) const {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    if (!file.is_open()) file.open(path(), std::ios::binary | std::ios::out);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
  }

 private:
  std::string path() const { return directory_.path() + "/shift"; }

  const testing::TempDir directory_;
};

// absl's clock looks at the system's every few seconds, so a process sees a jump this long after it.
constexpr absl::Duration kUntilAJumpShows = absl::Seconds(3);

std::vector<testing::CollectedSpan> SpansNamed(absl::string_view name, const testing::TraceCollector& collector) {
  std::vector<testing::CollectedSpan> spans = collector.spans();
  std::erase_if(spans, [&](const testing::CollectedSpan& span) { return span.span.name() != name; });
  return spans;
}

constexpr char kCall[] = "foretoken.v1.GenerationService/Generate";

class ClockJumps : public ::testing::TestWithParam<double> {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "a sanitizer must be loaded before any other library";
  }
};

TEST_P(ClockJumps, StopNothing) {
  const ShiftedClock clock;
  const testing::TempDir directory;
  ServiceProcess proposer(
      "foretoken_proposer",
      {"--method=suffix", "--suffix_snapshot=" + directory.path() + "/outputs", "--suffix_snapshot_interval=300ms"},
      clock.Environment());
  ServiceProcess verifier("foretoken_verifier",
                          {"--proposer=suffix=static:" + proposer.address(), "--max_write_time=1s"},
                          clock.Environment());
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 2});
  ASSERT_TRUE(load.AcceptsMore());
  const auto written_at = [&] { return proposer.Metric("foretoken_suffix_snapshot_timestamp_seconds"); };
  ASSERT_TRUE(WaitUntil([&] { return written_at() > 0; }));
  const QuietLevels levels({&verifier, &proposer});

  clock.Set(GetParam());
  absl::SleepFor(kUntilAJumpShows);
  const double before = written_at();
  EXPECT_TRUE(load.AcceptsMore()) << "after the jump";
  EXPECT_TRUE(WaitUntil([&] { return written_at() > before; })) << "snapshots stop";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
  EXPECT_EQ(verifier.Terminate(), 0);
}

// The collector is busy once, so the exporter waits for a batch and then for its second try.
TEST_P(ClockJumps, DelayNoSpan) {
  const ShiftedClock clock;
  std::atomic<bool> is_busy{true};
  testing::TraceCollector collector([&](otlp::ExportTraceServiceResponse*) {
    return is_busy.exchange(false) ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy") : grpc::Status::OK;
  });
  std::vector<std::string> environment = clock.Environment();
  environment.push_back("OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.url());
  environment.push_back("OTEL_BSP_SCHEDULE_DELAY=50");
  ServiceProcess verifier("foretoken_verifier", {}, environment);
  client::GenerationClient client = Connect(verifier);
  clock.Set(GetParam());
  ASSERT_TRUE(client.Generate(RepetitiveRequest(0)).ok());
  EXPECT_TRUE(WaitUntil([&] { return !collector.spans().empty(); }, absl::Seconds(20)));
  EXPECT_FALSE(is_busy);
  // absl's clock looks at the system's every few seconds.
  const auto is_after_the_jump = [&](const testing::CollectedSpan& span) {
    const absl::Time begin = absl::FromUnixNanos(static_cast<int64_t>(span.span.start_time_unix_nano()));
    return absl::AbsDuration(begin - absl::Now() - absl::Seconds(GetParam())) < absl::Minutes(10);
  };
  EXPECT_TRUE(WaitUntil(
      [&] {
        EXPECT_TRUE(client.Generate(RepetitiveRequest(0)).ok());
        return std::ranges::any_of(collector.spans(), is_after_the_jump);
      },
      absl::Seconds(20)))
      << "the service sees no jump, so these tests prove nothing";
}

TEST_P(ClockJumps, StretchNoSpan) {
  const ShiftedClock clock;
  const testing::TraceCollector collector;
  std::vector<std::string> environment = clock.Environment();
  environment.push_back("OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.url());
  environment.push_back("OTEL_BSP_SCHEDULE_DELAY=50");
  ServiceProcess proposer("foretoken_proposer", {"--method=ngram", "--trace_proposals"}, environment);
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address(), "--trace_steps"},
                          environment);
  client::GenerationClient client = Connect(verifier);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) > 0; }));
  const auto jump = [&](const v1::GenerateResponse&) {
    clock.Set(GetParam());
    return true;
  };
  ASSERT_TRUE(client.Generate(RepetitiveRequest(0), jump).ok());
  const auto named = [&](absl::string_view name) { return SpansNamed(name, collector); };
  ASSERT_TRUE(WaitUntil([&] { return !named(kCall).empty() && !named("session").empty(); }));
  const otlp::Span call = named(kCall)[0].span, decode = named("decode").at(0).span;
  EXPECT_GE(decode.start_time_unix_nano(), call.start_time_unix_nano());
  EXPECT_LE(decode.end_time_unix_nano(), call.end_time_unix_nano());
  EXPECT_GT(named("proposal").size(), 1u);
  constexpr char kStream[] = "foretoken.v1.ProposalService/Propose";
  absl::SleepFor(kUntilAJumpShows);
  verifier.Kill();  // ends the stream
  ASSERT_TRUE(WaitUntil([&] { return !named(kStream).empty(); }));
  EXPECT_GE(named(kStream)[0].nanos(), absl::ToInt64Nanoseconds(kUntilAJumpShows));
  for (const testing::CollectedSpan& span : collector.spans()) {
    EXPECT_LT(absl::Nanoseconds(span.nanos()), absl::Minutes(10)) << span.span.name();
  }
  EXPECT_GE(named("session")[0].nanos(), named("decode")[0].nanos() / 2) << "it lasts as long as the request";
}

// The verifier stops in the middle of the call, so that the command sees the jump before the call ends.
TEST_P(ClockJumps, StretchNoSpanOfACommand) {
  const ShiftedClock clock;
  const testing::TempDir directory;
  const testing::TraceCollector collector;
  ServiceProcess verifier("foretoken_verifier", {});
  testing::ChildProcess generate(clock.Command({"generate", absl::StrCat("--target=", verifier.address()), "--trace",
                                                "--n=4", "--max_tokens=800", "--ignore_eos", "def sum(a, b):"},
                                               {absl::StrCat("OTEL_EXPORTER_OTLP_ENDPOINT=", collector.url())}),
                                 directory.path() + "/log");
  ASSERT_TRUE(WaitUntil([&] { return verifier.Metric("foretoken_samples_running") > 0; }));
  verifier.process().Signal(SIGSTOP);
  clock.Set(GetParam());
  absl::SleepFor(kUntilAJumpShows);
  verifier.process().Signal(SIGCONT);
  EXPECT_EQ(generate.Wait(), 0);
  const std::vector<testing::CollectedSpan> calls = SpansNamed(kCall, collector);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].service, "foretoken-client");
  EXPECT_GE(calls[0].nanos(), absl::ToInt64Nanoseconds(kUntilAJumpShows));
  EXPECT_LT(absl::Nanoseconds(calls[0].nanos()), absl::Minutes(10));
}

// The result that `foretoken bench` has written.
nlohmann::json ResultOf(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, /*cb=*/nullptr, /*allow_exceptions=*/false);
}

// Again the verifier stops in the middle of the call.
TEST_P(ClockJumps, StretchNoMeasuredTime) {
  const ShiftedClock clock;
  const testing::TempDir directory;
  const std::string result = directory.path() + "/result";
  ServiceProcess verifier("foretoken_verifier", {});
  testing::ChildProcess bench(
      clock.Command({"bench", absl::StrCat("--target=", verifier.address()), absl::StrCat("--json_out=", result),
                     "--n=4", "--max_tokens=800", "--ignore_eos", "def sum(a, b):"}),
      directory.path() + "/log");
  ASSERT_TRUE(WaitUntil([&] { return verifier.Metric("foretoken_generated_tokens_total") > 0; }));
  verifier.process().Signal(SIGSTOP);
  clock.Set(GetParam());
  absl::SleepFor(kUntilAJumpShows);
  verifier.process().Signal(SIGCONT);
  EXPECT_EQ(bench.Wait(), 0);
  const nlohmann::json json = ResultOf(result);
  ASSERT_TRUE(json.is_object());
  EXPECT_GE(json["wall_s"], absl::ToDoubleSeconds(kUntilAJumpShows));
  EXPECT_LT(json["wall_s"], 600);
  EXPECT_LT(json["inter_token_ms"]["mean"], 600) << "of 799 tokens, so an hour would make it 4,500";
}

// Twelve requests within 7.2 seconds, the first after 0.1: their times depend on the load's seed alone.
TEST_P(ClockJumps, DelayNoRequestOfALoad) {
  const ShiftedClock clock;
  const testing::TempDir directory;
  const std::string result = directory.path() + "/result";
  ServiceProcess verifier("foretoken_verifier", {});
  testing::ChildProcess bench(
      clock.Command({"bench", absl::StrCat("--target=", verifier.address()), absl::StrCat("--json_out=", result),
                     "--rate=1", "--requests=12", "--max_tokens=2", "def sum(a, b):"}),
      directory.path() + "/log");
  ASSERT_TRUE(WaitUntil([&] { return verifier.Metric("foretoken_generated_tokens_total") > 0; }));
  clock.Set(GetParam());
  ASSERT_TRUE(WaitUntil([&] { return bench.MemoryBytes() == 0; })) << "a request waits for the shifted clock";
  EXPECT_EQ(bench.Wait(), 0);
  const nlohmann::json json = ResultOf(result);
  ASSERT_TRUE(json.is_object());
  EXPECT_GE(json["wall_s"], 7);
  EXPECT_LT(json["wall_s"], 600);
}

// A request that takes longer than the grace.
v1::GenerateRequest LongRequest(int index) {
  v1::GenerateRequest request = RepetitiveRequest(index);
  request.mutable_sampling()->set_n(16);
  request.mutable_stopping()->set_max_tokens(800);
  return request;
}

// A call that only the server ends: a client watches the health.
class HealthWatch {
 public:
  explicit HealthWatch(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        call_(stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_)) {
    call_->StartCall(nullptr);
    Next();
    const grpc::ByteBuffer whole_server{nullptr, 0};
    call_->Write(whole_server, nullptr);
    Next();
    grpc::ByteBuffer health;
    call_->Read(&health, nullptr);
    Next();
  }
  ~HealthWatch() {
    context_.TryCancel();
    queue_.Shutdown();
    while (Next()) continue;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_P(ClockJumps, ProlongNoDrain) {
  const ShiftedClock clock;
  ServiceProcess verifier("foretoken_verifier", {"--drain_grace=100ms"}, clock.Environment());
  client::GenerationClient client = Connect(verifier);
  const HealthWatch watch(verifier.address());
  StreamLoad load(client, {.mode = v1::SPECULATION_MODE_OFF, .num_streams = 1, .make_request = LongRequest});
  ASSERT_TRUE(load.Continues());
  clock.Set(GetParam());
  verifier.process().Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return verifier.process().MemoryBytes() == 0; }, absl::Seconds(20)));
  verifier.Kill();  // or the load would wait for an hour
}

INSTANTIATE_TEST_SUITE_P(Hours, ClockJumps, ::testing::Values(3600.0, -3600.0),
                         [](const auto& info) { return info.param > 0 ? "Ahead" : "Back"; });

}  // namespace
}  // namespace foretoken
