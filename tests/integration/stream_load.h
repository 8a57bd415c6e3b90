// SPDX-License-Identifier: Apache-2.0
// A verifier under load. Streams send request after request until the test has seen enough. The test then compares
// their tokens with the tokens of the same requests without speculation.
//
//   StreamLoad load(client, {.num_streams = 4});
//   ASSERT_TRUE(load.AcceptsMore()) << "the test proves nothing: no guess is accepted";
//   ...                                                  // harm the proposers
//   EXPECT_TRUE(load.Continues());
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

// Waits for a condition that a correct service fulfils much sooner.
template <typename Condition>
bool WaitUntil(const Condition& condition, absl::Duration patience = absl::Seconds(60)) {
  for (const absl::Time end = absl::Now() + patience; absl::Now() < end; absl::SleepFor(absl::Milliseconds(5))) {
    if (condition()) return true;
  }
  return condition();
}

// A request for repetitive code, with kRequestTokens of output. A proposer can guess much of it. Every second request
// is greedy.
v1::GenerateRequest RepetitiveRequest(int index);

struct LoadOptions {
  // The default uses all guesses, even if they do not pay on this machine.
  v1::SpeculationMode mode = v1::SPECULATION_MODE_ALWAYS;
  int num_streams = 4;
  int num_requests = 1'000'000;  // at most; a load under test should end before
  int num_distinct = 16;         // then the requests repeat, so that the comparison stays short
  std::function<v1::GenerateRequest(int)> make_request = RepetitiveRequest;
  std::function<void(const v1::GenerateResponse&)> on_response = [](const auto&) {};  // called by several threads
};

class StreamLoad {
 public:
  // The time between two messages of a stream.
  struct Gap {
    absl::Time at;
    absl::Duration length;
  };

  StreamLoad(client::GenerationClient& client, LoadOptions options = {});
  ~StreamLoad() { Finish(); }

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_accepted() const { return num_accepted_; }  // tokens that proposers guessed

  // Waits until this many more guessed tokens are accepted. False: it takes too long.
  bool AcceptsMore(int64_t num_tokens = 50) const;
  // Waits until the streams have received 20 more tokens each, on average. False: it takes too long.
  bool Continues() const;

  // Ends every stream after its current request.
  void Finish();
  // Ends every stream at once, and cancels its call.
  void Cancel();
  // Finishes. Expects no errors, and for every request the tokens of the same request with speculation off.
  void ExpectTheTokensOfNoSpeculation();
  // Finishes and returns the tokens.
  const std::map<int, std::vector<uint32_t>>& Outputs();
  // Valid after Finish. A stream goes on with the next request after an error, unless the server is gone.
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<Gap>& gaps() const { return gaps_; }

 private:
  void Stream();

  client::GenerationClient& client_;
  const LoadOptions options_;
  std::atomic<int> next_request_{0};
  std::atomic<bool> is_enough_{false};
  client::Cancellation cancellation_;
  std::atomic<int64_t> num_tokens_{0};
  std::atomic<int64_t> num_accepted_{0};
  absl::Mutex mutex_;
  std::map<int, std::vector<uint32_t>> outputs_;  // by request; a repeated one has its own
  std::vector<std::string> errors_;
  std::vector<Gap> gaps_;
  std::vector<std::thread> threads_;
};

// The gaps that ended in [begin, end). It uses the mean, because messages come in bursts to a reader without a free
// core, and a median would hide that.
struct GapSummary {
  absl::Duration mean;
  absl::Duration p99;
  absl::Duration longest;
  size_t num_gaps = 0;
};
GapSummary Summarise(const std::vector<StreamLoad::Gap>& gaps, absl::Time begin, absl::Time end);

}  // namespace foretoken
