// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken bench --rate` sends another load than it says: a slow server gets fewer requests, and
// looks faster than it is.
#include "client/load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "tests/testing/fakes/fake_generation_service.h"

namespace foretoken::client {
namespace {

using foretoken::testing::FakeGenerationService;
using foretoken::v1::GenerateRequest;

constexpr int kNumRequests = 40;
constexpr double kRate = 100;  // so the requests come within 0.4 s in the mean
constexpr absl::Duration kPatience = absl::Seconds(30);

// A server whose requests end when `num_awaited` of them are there at the same time.
class Gathering {
 public:
  explicit Gathering(int num_awaited) {
    service_.set_script([this, num_awaited](const GenerateRequest&, auto&, const auto&) {
      ++num_running_;
      const absl::Time give_up = absl::Now() + kPatience;
      while (num_running_ < num_awaited && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(1));
      return grpc::Status::OK;
    });
  }
  GenerationClient Connect() const { return *GenerationClient::Connect({.target = service_.target()}); }
  int num_running() const { return num_running_; }

 private:
  std::atomic<int> num_running_ = 0;
  FakeGenerationService service_;
};

LoadResult SendAll(GenerationClient& client, const LoadOptions& options) {
  return RunLoad(client, std::vector<GenerateRequest>(kNumRequests), options, [](const TimedGeneration&) {});
}

TEST(OpenLoop, SendsRequestsWhileOthersRun) {
  const Gathering server(kNumRequests);
  GenerationClient client = server.Connect();
  const LoadResult result = SendAll(client, {.num_clients = kNumRequests, .rate = kRate});
  EXPECT_EQ(server.num_running(), kNumRequests);
  EXPECT_LT(result.wall, kPatience) << "some request waited for the end of another";
  EXPECT_GT(result.wall, absl::Seconds(0.5 * kNumRequests / kRate)) << "all came at once";
}

TEST(OpenLoop, SaysHowManyRequestsWereSentLate) {
  const Gathering server(3);
  GenerationClient client = server.Connect();
  std::jthread third([&] {  // when all requests but the first two should have been sent
    GenerationClient other = server.Connect();
    absl::SleepFor(absl::Seconds(1));
    (void)other.Generate(GenerateRequest());
  });
  EXPECT_GE(SendAll(client, {.num_clients = 2, .rate = kRate}).num_sent_late, kNumRequests / 2);
}

TEST(OpenLoop, EndsAtOnceWhenItIsCancelled) {
  const Gathering server(0);
  GenerationClient client = server.Connect();
  Cancellation cancellation;
  std::jthread canceller([&] {
    absl::SleepFor(absl::Milliseconds(50));
    cancellation.Cancel();
  });
  const LoadResult result = SendAll(client, {.num_clients = 8, .rate = 0.01, .cancellation = &cancellation});
  EXPECT_LT(result.wall, kPatience);
  EXPECT_EQ(result.generations.back().status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace foretoken::client
