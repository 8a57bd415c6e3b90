// SPDX-License-Identifier: Apache-2.0
// A real verifier with a flood of one tenant. If this test fails, one tenant can keep another from being served.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"

namespace foretoken {
namespace {

// Clients of one tenant. Each sends a request some time after its last one has ended, so that another client can take
// its place in the queue.
class TenantLoad {
 public:
  TenantLoad(client::GenerationClient& client, const std::string& tenant, int num_clients, absl::Duration pause) {
    for (int i = 0; i < num_clients; ++i) {
      clients_.emplace_back([this, &client, tenant, pause, i] {
        v1::GenerateRequest request = RepetitiveRequest(i);
        request.set_tenant(tenant);
        request.mutable_stopping()->set_max_tokens(32);
        request.mutable_speculation()->set_mode(v1::SPECULATION_MODE_OFF);
        while (!is_enough_) {
          const absl::StatusOr<client::Generation> generation = client.Generate(request);
          ++(generation.ok() ? num_completed_ : num_refused_);
          absl::SleepFor(pause);
        }
      });
    }
  }
  ~TenantLoad() {
    is_enough_ = true;
    for (std::thread& client : clients_) client.join();
  }

  int num_completed() const { return num_completed_; }
  int num_refused() const { return num_refused_; }

 private:
  std::atomic<bool> is_enough_{false};
  std::atomic<int> num_completed_{0}, num_refused_{0};
  std::vector<std::thread> clients_;
};

TEST(Fairness, AFloodLeavesAnotherTenantItsShare) {
  ServiceProcess verifier("foretoken_verifier", {"--max_running_samples=4", "--max_queued_requests=8"});
  client::GenerationClient client = Connect(verifier);
  const TenantLoad flood(client, "flood", /*num_clients=*/40, absl::Milliseconds(1));
  ASSERT_TRUE(WaitUntil([&] { return flood.num_refused() > 40; })) << "the test proves nothing: the queue is not full";
  // Enough clients to want the whole server, and few enough for their share of the queue.
  const TenantLoad other(client, "other", /*num_clients=*/6, absl::Milliseconds(1));
  ASSERT_TRUE(WaitUntil([&] { return other.num_completed() > 4; }));
  const int flood_before = flood.num_completed(), other_before = other.num_completed();
  ASSERT_TRUE(WaitUntil([&] { return other.num_completed() >= other_before + 40; }));
  const int num_flood = flood.num_completed() - flood_before, num_other = other.num_completed() - other_before;
  EXPECT_GE(num_other, 0.9 * (num_other + num_flood) / 2);
}

}  // namespace
}  // namespace foretoken
