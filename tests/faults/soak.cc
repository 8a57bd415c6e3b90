// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/soak.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/tcp_relay.h"

namespace foretoken {
namespace {

constexpr int kCapacity = 8;  // samples that the verifier runs at a time
constexpr int kQueued = 4;    // requests that it lets wait
constexpr int kNumDistinct = 24;
constexpr int kCancelEvery = 3;  // calls of a client
constexpr int kMaxFailures = 20;
constexpr absl::Duration kRetryPause = absl::Milliseconds(20);  // of a refused client
constexpr absl::Duration kCalm = absl::Seconds(5);
// Between faults. The proposer works in between, and every third stop is longer than the verifier waits for an answer.
constexpr absl::Duration kFaultPause = absl::Seconds(2), kShortStop = absl::Seconds(1), kLongStop = absl::Seconds(6);

v1::GenerateRequest SoakRequest(int index) {
  v1::GenerateRequest request = RepetitiveRequest(index % kNumDistinct);
  request.mutable_speculation()->set_mode(index % 3 == 0 ? v1::SPECULATION_MODE_ALWAYS : v1::SPECULATION_MODE_AUTO);
  return request;
}

class Soak {
 public:
  explicit Soak(const SoakOptions& options) : options_(options) {
    for (int i = 0; i < kNumDistinct; ++i) expected_.push_back(QuietTokens(i));
  }

  SoakResult Run() {
    result_.calm_tokens_per_second = RunClients(kCapacity, std::min(kCalm, options_.length));
    testing::MemoryWatch watch({{"verifier", &verifier_.process()},
                                {"ngram proposer", &ngram_.process()},
                                {"suffix proposer", &suffix_.process()}});
    std::atomic<bool> is_over = false;
    std::thread harm([&] { HarmProposers(is_over); });
    std::thread vanish([&] { Vanish(is_over); });
    result_.overload_tokens_per_second = RunClients(2 * kCapacity, options_.length);
    result_.growths = watch.Finish();
    is_over = true;
    harm.join();
    vanish.join();
    ExpectNothingLeft();
    return result_;
  }

 private:
  std::vector<uint32_t> QuietTokens(int index) {
    v1::GenerateRequest request = RepetitiveRequest(index);
    request.mutable_speculation()->set_mode(v1::SPECULATION_MODE_OFF);
    const auto generation = client_.Generate(request);
    if (generation.ok()) return generation->samples.at(0).token_ids;
    Fail(absl::StrCat("quiet run: ", generation.status().ToString()));
    return {};
  }

  // Returns the tokens per second that clients received.
  double RunClients(int num_clients, absl::Duration length) {
    num_tokens_ = 0;
    const absl::Time begin = SteadyNow();
    std::vector<std::thread> clients;
    for (int i = 0; i < num_clients; ++i) {
      clients.emplace_back([&] {
        for (int num_calls = 1; SteadyNow() < begin + length; ++num_calls) Call(num_calls % kCancelEvery == 0);
      });
    }
    for (std::thread& client : clients) client.join();
    return static_cast<double>(num_tokens_) / absl::ToDoubleSeconds(SteadyNow() - begin);
  }

  void Call(bool is_cancelled) {
    const int index = next_request_.fetch_add(1);
    const std::vector<uint32_t>& expected = expected_[index % kNumDistinct];
    std::vector<uint32_t> tokens;
    const absl::Status status = client_.Generate(SoakRequest(index), [&](const v1::GenerateResponse& response) {
      tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
      return !is_cancelled || tokens.size() < expected.size() / 2;
    });
    num_tokens_ += static_cast<int64_t>(tokens.size());
    if (absl::IsResourceExhausted(status)) {
      Count(&result_.num_refused);
      return absl::SleepFor(kRetryPause);
    }
    if (!status.ok()) return Fail(absl::StrCat("request ", index, ": ", status.ToString()));
    const bool is_right =
        tokens.size() <= expected.size() && std::ranges::equal(tokens, std::span(expected).first(tokens.size()));
    if (!is_right || (!is_cancelled && tokens.size() != expected.size())) {
      return Fail(absl::StrCat("request ", index, ": wrong tokens"));
    }
    Count(is_cancelled ? &result_.num_cancelled : &result_.num_complete);
  }

  void HarmProposers(const std::atomic<bool>& is_over) {
    const auto pause = [&](absl::Duration length) {
      for (const absl::Time end = SteadyNow() + length; !is_over && SteadyNow() < end;) absl::SleepFor(kRetryPause);
    };
    for (int i = 0; !is_over; ++i) {
      pause(kFaultPause);
      victim_.Kill();
      ++result_.num_kills;
      pause(kFaultPause);
      victim_.Restart();
      suffix_.process().Signal(SIGSTOP);
      ++result_.num_stops;
      pause(i % 3 == 2 ? kLongStop : kShortStop);
      suffix_.process().Signal(SIGCONT);
    }
  }

  // Clients whose host is lost: their connections end long after.
  void Vanish(const std::atomic<bool>& is_over) {
    while (!is_over) {
      testing::TcpRelay relay(verifier_.address());
      auto client = client::GenerationClient::Connect({.target = relay.address()});
      if (!client.ok()) {
        Fail(absl::StrCat("a client cannot connect: ", client.status().ToString()));
        continue;
      }
      StreamLoad load(*client, {.mode = v1::SPECULATION_MODE_AUTO, .num_streams = 2});
      absl::SleepFor(absl::Seconds(1));
      relay.Freeze();
      absl::SleepFor(absl::Seconds(1));
      load.Cancel();
      result_.num_vanished += 2;
    }
  }

  void ExpectNothingLeft() {
    for (ServiceProcess* service : {&verifier_, &ngram_, &suffix_, &victim_}) {
      for (const char* name : {"foretoken_samples_running", "foretoken_requests_queued", "foretoken_unread_calls",
                               "foretoken_proposer_sessions"}) {
        if (!WaitUntil([&] { return service->Metric(name) == 0; })) Fail(absl::StrCat("left at the end: ", name));
      }
    }
    const auto page = verifier_.Metrics();
    const double num_unused = page.at("foretoken_kv_blocks_free") + page.at("foretoken_kv_blocks_cached");
    if (num_unused != page.at("foretoken_kv_blocks")) Fail("K/V blocks are lost");
  }

  void Count(int64_t* counter) {
    absl::MutexLock lock(&mutex_);
    ++*counter;
  }
  void Fail(const std::string& what) {
    absl::MutexLock lock(&mutex_);
    if (result_.failures.size() < kMaxFailures) result_.failures.push_back(what);
  }

  const SoakOptions options_;
  // A small memory of outputs, so that it is full soon.
  ServiceProcess suffix_{"foretoken_proposer", {"--method=suffix", "--suffix_shared_tokens=32768"}};
  ServiceProcess ngram_{"foretoken_proposer", {}};
  ServiceProcess victim_{"foretoken_proposer", {}};
  ServiceProcess verifier_{
      "foretoken_verifier",
      {absl::StrCat("--proposer=suffix=static:", suffix_.address(), ";ngram=static:", ngram_.address(), ",",
                    victim_.address()),
       absl::StrCat("--max_running_samples=", kCapacity), absl::StrCat("--max_queued_requests=", kQueued)},
      options_.verifier_environment};
  client::GenerationClient client_ = Connect(verifier_);
  std::vector<std::vector<uint32_t>> expected_;  // [kNumDistinct]
  std::atomic<int> next_request_{0};
  std::atomic<int64_t> num_tokens_{0};
  absl::Mutex mutex_;
  SoakResult result_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const SoakResult& result) {
  out << absl::StrFormat("%d calls complete, %d refused, %d cancelled, %d vanished; %d kills, %d stops\n",
                         result.num_complete, result.num_refused, result.num_cancelled, result.num_vanished,
                         result.num_kills, result.num_stops)
      << absl::StrFormat("tokens per second: %.0f at capacity without faults, %.0f at twice the capacity with faults\n",
                         result.calm_tokens_per_second, result.overload_tokens_per_second);
  for (const testing::MemoryGrowth& growth : result.growths) {
    constexpr double kMiB = 1 << 20;
    out << absl::StrFormat("memory of the %s: %.1f MiB once warm, %.1f MiB at the end\n", growth.name,
                           growth.begin_bytes / kMiB, growth.end_bytes / kMiB);
  }
  return out;
}

SoakResult RunSoak(const SoakOptions& options) { return Soak(options).Run(); }

}  // namespace foretoken
