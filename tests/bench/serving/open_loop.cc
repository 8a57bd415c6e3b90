// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/open_loop.h"

#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "tests/testing/error_details.h"

namespace foretoken::bench {
namespace {

using Clock = std::chrono::steady_clock;
using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

// The calls that have ended, and the number of those that have not.
class EndedCalls {
 public:
  explicit EndedCalls(Clock::time_point start) : start_(start) {}

  absl::Duration Now() const { return absl::FromChrono(Clock::now() - start_); }
  void Begin() {
    absl::MutexLock lock(&mutex_);
    ++num_open_;
  }
  void End(OpenCall call) {
    absl::MutexLock lock(&mutex_);
    calls_.push_back(std::move(call));
    --num_open_;
  }
  std::vector<OpenCall> WaitForAll() {
    absl::MutexLock lock(&mutex_);
    const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_open_ == 0; };
    mutex_.Await(absl::Condition(&is_over));
    return std::move(calls_);
  }

 private:
  const Clock::time_point start_;
  absl::Mutex mutex_;
  std::vector<OpenCall> calls_ ABSL_GUARDED_BY(mutex_);
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Destroys itself at its end.
class Call : public grpc::ClientReadReactor<GenerateResponse> {
 public:
  Call(EndedCalls& ended, absl::Duration planned) : ended_(ended) { call_.planned = planned; }

  void Start(foretoken::v1::GenerationService::Stub& stub, const GenerateRequest& request, absl::Duration deadline) {
    ended_.Begin();
    if (deadline != absl::InfiniteDuration()) context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    call_.began = ended_.Now();
    stub.async()->Generate(&context_, &request, this);
    StartRead(&response_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (call_.num_tokens == 0 && response_.token_ids_size() > 0) call_.first_token = ended_.Now();
    call_.num_tokens += response_.token_ids_size();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    call_.ended = ended_.Now();
    call_.code = status.error_code();
    if (!status.ok()) call_.reason = testing::ReasonOf(status);
    const auto pushback = context_.GetServerTrailingMetadata().find("grpc-retry-pushback-ms");
    if (pushback != context_.GetServerTrailingMetadata().end()) {
      call_.pushback = {pushback->second.begin(), pushback->second.end()};
    }
    // The context holds the channel. If it lived on after the loop's end, the channel could end on gRPC's own thread,
    // which gRPC does not survive.
    EndedCalls& ended = ended_;
    OpenCall call = std::move(call_);
    delete this;
    ended.End(std::move(call));
  }

  EndedCalls& ended_;
  OpenCall call_;
  grpc::ClientContext context_;
  GenerateResponse response_;
};

}  // namespace

std::vector<OpenCall> RunOpenLoop(foretoken::v1::GenerationService::Stub& stub,
                                  std::span<const GenerateRequest> requests, const OpenLoopOptions& options) {
  const Clock::time_point start = Clock::now();
  EndedCalls ended(start);
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap_seconds(options.calls_per_second);
  absl::Duration planned;
  for (size_t i = 0; (planned += absl::Seconds(gap_seconds(random))) < options.duration; ++i) {
    std::this_thread::sleep_until(start + absl::ToChronoNanoseconds(planned));
    if (options.on_time) options.on_time(planned);
    (new Call(ended, planned))->Start(stub, requests[i % requests.size()], options.deadline);
  }
  return ended.WaitForAll();
}

}  // namespace foretoken::bench
