// SPDX-License-Identifier: Apache-2.0
// A verifier under load: streams that go on with request after request until the test has seen enough. What they said
// is then compared with what the same requests say without speculation.
//
//   StreamLoad load(client, {.num_streams = 4});
//   ASSERT_TRUE(load.WinsMore()) << "void: nothing is guessed right";
//   ...                                                  // harm the proposers
//   EXPECT_TRUE(load.GoesOn());
//   load.ExpectTheTokensOfNoSpeculation();
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/generation_client.h"

namespace foretoken {

inline constexpr int kRequestTokens = 256;

// Waits for what must come; nothing waits so long unless it fails.
template <typename Condition>
bool WaitUntil(const Condition& condition, absl::Duration patience = absl::Seconds(60)) {
  for (const absl::Time end = absl::Now() + patience; absl::Now() < end; absl::SleepFor(absl::Milliseconds(5))) {
    if (condition()) return true;
  }
  return condition();
}

// Repetitive code, of which a proposer can guess a lot, kRequestTokens of output; every second request is greedy.
v1::GenerateRequest RepetitiveRequest(int index);

struct LoadOptions {
  // By default guesses are used when there are any, be it worth while on this machine or not.
  v1::SpeculationMode mode = v1::SPECULATION_MODE_ALWAYS;
  int num_streams = 4;
  int num_requests = 1000;  // at most; a load under test is to be finished before
  std::function<v1::GenerateRequest(int)> make_request = RepetitiveRequest;
};

class StreamLoad {
 public:
  // A message that came this long after the one before it, in one stream.
  struct Gap {
    absl::Time at;
    absl::Duration length;
  };

  StreamLoad(client::GenerationClient& client, LoadOptions options = {});
  ~StreamLoad() { Finish(); }

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_won() const { return num_won_; }  // by speculation

  // Whether speculation wins so many tokens more, from now on.
  bool WinsMore(int64_t num_tokens = 50) const;
  // Whether every stream goes on by some tokens from now on.
  bool GoesOn() const;

  // Every stream ends with the request that it is at.
  void Finish();
  // Finishes. Every request's tokens are those of the same request with speculation off, and there were no errors.
  void ExpectTheTokensOfNoSpeculation();
  // Finishes.
  const std::map<int, std::vector<uint32_t>>& Outputs();
  // After Finish.
  const std::vector<Gap>& gaps() const { return gaps_; }

 private:
  void Stream();

  client::GenerationClient& client_;
  const LoadOptions options_;
  std::atomic<int> next_request_{0};
  std::atomic<bool> is_enough_{false};
  std::atomic<int64_t> num_tokens_{0};
  std::atomic<int64_t> num_won_{0};
  absl::Mutex mutex_;
  std::map<int, std::vector<uint32_t>> outputs_;  // by request
  std::vector<std::string> errors_;
  std::vector<Gap> gaps_;
  std::vector<std::thread> threads_;
};

// Of the gaps that ended in [begin, end). The mean, not the median: to a reader that is short of a core messages come
// in bursts.
struct GapSummary {
  absl::Duration mean;
  absl::Duration longest;
  size_t num_gaps = 0;
};
GapSummary Summarise(const std::vector<StreamLoad::Gap>& gaps, absl::Time begin, absl::Time end);

}  // namespace foretoken
