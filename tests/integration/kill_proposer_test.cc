// SPDX-License-Identifier: Apache-2.0
// Both services as processes: 32 streams at a time, whose proposer is killed and comes back. Not one token may differ
// from those of a run without speculation.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/generation_client.h"
#include "gtest/gtest.h"
#include "tests/testing/child_process.h"
#include "tests/testing/paths.h"

namespace foretoken {
namespace {

using client::GenerationClient;
using testing::ChildProcess;
using Tokens = std::vector<uint32_t>;

constexpr int kNumStreams = 32;
constexpr int kMaxRequests = 640;  // the streams go on with further requests until the test has seen enough
constexpr int64_t kEnough = 50;    // tokens won by speculation, before and after
constexpr absl::Duration kPatience = absl::Seconds(60);

std::string BinaryPath(const std::string& name) { return std::string(FORETOKEN_BINARY_DIR) + "/" + name; }

// Repetitive code, of which an n-gram proposer can guess a lot; every second request is greedy.
v1::GenerateRequest MakeRequest(int index) {
  static constexpr const char* kNames[] = {"alpha", "beta", "gamma", "delta"};
  v1::GenerateRequest request;
  std::string text = "class Config:\n    def __init__(self):\n";
  for (const char* name : kNames) text += std::string("        self.") + name + " = None\n";
  for (const char* name : kNames) {
    text += std::string("\n    def get_") + name + "(self):\n        return self." + name + "\n";
  }
  text += "\n    def set_" + std::to_string(index) + "(self, value):\n";
  request.set_text(text);
  request.mutable_sampling()->set_temperature(index % 2 == 0 ? 0 : 0.8f);
  request.mutable_sampling()->set_seed(1000 + index);
  request.mutable_stopping()->set_max_tokens(256);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// What the streams have seen so far.
struct Progress {
  std::atomic<int> next_request{0};
  std::atomic<bool> is_enough{false};
  std::atomic<int64_t> num_tokens{0};
  std::atomic<int64_t> num_won{0};  // by speculation
  absl::Mutex mutex;
  std::vector<Tokens> outputs = std::vector<Tokens>(kMaxRequests);
  std::vector<std::string> errors;
};

void StreamRequests(GenerationClient& client, v1::SpeculationMode mode, int num_requests, Progress& progress) {
  while (!progress.is_enough) {
    const int index = progress.next_request.fetch_add(1);
    if (index >= num_requests) return;
    v1::GenerateRequest request = MakeRequest(index);
    request.mutable_speculation()->set_mode(mode);
    Tokens tokens;
    const absl::Status status = client.Generate(request, [&](const v1::GenerateResponse& response) {
      tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
      progress.num_tokens += response.token_ids_size();
      progress.num_won += std::count(response.speculated().begin(), response.speculated().end(), true);
      return true;
    });
    absl::MutexLock lock(&progress.mutex);
    if (!status.ok()) progress.errors.push_back(status.ToString());
    progress.outputs[index] = std::move(tokens);
  }
}

std::vector<std::thread> StartStreams(GenerationClient& client, v1::SpeculationMode mode, int num_requests,
                                      Progress& progress) {
  std::vector<std::thread> streams;
  for (int i = 0; i < kNumStreams; ++i) {
    streams.emplace_back(
        [&client, mode, num_requests, &progress] { StreamRequests(client, mode, num_requests, progress); });
  }
  return streams;
}

template <typename Condition>
bool WaitUntil(const Condition& condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

uint32_t NumConnected(GenerationClient& client) {
  const auto info = client.GetModelInfo();
  return info.ok() && info->proposers_size() == 1 ? info->proposers(0).num_connected() : 99;
}

TEST(KillProposer, ChangesNoTokenAndSpeculationComesBack) {
  auto proposer = std::make_unique<ChildProcess>(
      std::vector<std::string>{BinaryPath("foretoken_proposer"), "--listen=127.0.0.1:0"});
  const std::optional<int> proposer_port = proposer->WaitForPort();
  ASSERT_TRUE(proposer_port);
  const std::string proposer_address = "127.0.0.1:" + std::to_string(*proposer_port);
  ChildProcess verifier({BinaryPath("foretoken_verifier"), "--model=" + testing::SourcePath("deploy/demo/target"),
                         "--listen=127.0.0.1:0", "--proposer=ngram=static:" + proposer_address});
  const std::optional<int> port = verifier.WaitForPort();
  ASSERT_TRUE(port);
  absl::StatusOr<GenerationClient> client = GenerationClient::Connect({.target = "127.0.0.1:" + std::to_string(*port)});
  ASSERT_TRUE(client.ok()) << client.status();

  Progress speculative;
  std::vector<std::thread> streams = StartStreams(*client, v1::SPECULATION_MODE_AUTO, kMaxRequests, speculative);
  EXPECT_TRUE(WaitUntil([&] { return speculative.num_won >= kEnough; })) << "void: nothing accepted before the kill";
  proposer->Signal(SIGKILL);
  proposer->Wait();
  EXPECT_TRUE(WaitUntil([&] { return NumConnected(*client) == 0; }));
  const int64_t num_tokens_at_kill = speculative.num_tokens;
  EXPECT_TRUE(WaitUntil([&] { return speculative.num_tokens >= num_tokens_at_kill + 20 * kNumStreams; }))
      << "the streams did not go on without the proposer";
  // Trees that came before the kill are used up by now.
  const int64_t num_won_without = speculative.num_won;
  proposer = std::make_unique<ChildProcess>(
      std::vector<std::string>{BinaryPath("foretoken_proposer"), "--listen=" + proposer_address});
  EXPECT_EQ(proposer->WaitForPort(), proposer_port);
  EXPECT_TRUE(WaitUntil([&] { return speculative.num_won >= num_won_without + kEnough; }))
      << "void: nothing accepted after the return";
  EXPECT_EQ(NumConnected(*client), 1);
  speculative.is_enough = true;
  for (std::thread& stream : streams) stream.join();
  EXPECT_TRUE(speculative.errors.empty()) << speculative.errors.front();

  const int num_requests = std::min(speculative.next_request.load(), kMaxRequests);
  EXPECT_LT(speculative.next_request, kMaxRequests) << "void: the streams ended before the test had seen enough";
  Progress plain;
  for (std::thread& stream : StartStreams(*client, v1::SPECULATION_MODE_OFF, num_requests, plain)) stream.join();
  EXPECT_TRUE(plain.errors.empty()) << plain.errors.front();
  EXPECT_EQ(plain.num_won, 0);
  for (int i = 0; i < num_requests; ++i) {
    EXPECT_EQ(plain.outputs[i].size(), 256) << i;
    EXPECT_EQ(speculative.outputs[i], plain.outputs[i]) << "request " << i;
  }
  verifier.Signal(SIGTERM);
  EXPECT_EQ(verifier.Wait(), 0);
}

}  // namespace
}  // namespace foretoken
