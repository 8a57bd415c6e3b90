// SPDX-License-Identifier: Apache-2.0
// Many Generate calls at the same time, from one thread.
//
//   CallBurst burst(*stub, request, 1000);
//   burst.WaitForReason("QUEUE_FULL", 900);
//   burst.WaitForAll();
//   EXPECT_EQ(burst.num("OK"), 100);
//
// Threads: one. The destructor waits for all calls.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "tests/testing/error_details.h"

namespace foretoken::testing {

class CallBurst {
 public:
  CallBurst(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request, int num_calls)
      : request_(request), num_calls_(num_calls) {
    for (int i = 0; i < num_calls; ++i) calls_.emplace_back(*this).Start(stub);
  }
  ~CallBurst() { WaitForAll(); }

  // Returns false if it takes minutes.
  bool WaitForReason(const std::string& reason, int num) {
    absl::MutexLock lock(&mutex_);
    const auto is_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ends_[reason] >= num; };
    return mutex_.AwaitWithTimeout(absl::Condition(&is_there), absl::Minutes(2));
  }
  void WaitForAll() {
    absl::MutexLock lock(&mutex_);
    const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_ended_ == num_calls_; };
    mutex_.Await(absl::Condition(&is_over));
  }
  // The calls that have ended with this reason, or with "OK".
  int num(const std::string& reason) {
    absl::MutexLock lock(&mutex_);
    return ends_[reason];
  }

 private:
  class Call : public grpc::ClientReadReactor<v1::GenerateResponse> {
   public:
    explicit Call(CallBurst& burst) : burst_(burst) {}
    void Start(v1::GenerationService::Stub& stub) {
      stub.async()->Generate(&context_, &burst_.request_, this);
      StartRead(&response_);
      StartCall();
    }

   private:
    void OnReadDone(bool ok) override {
      if (ok) StartRead(&response_);
    }
    void OnDone(const grpc::Status& status) override { burst_.End(status); }

    CallBurst& burst_;
    grpc::ClientContext context_;
    v1::GenerateResponse response_;
  };

  void End(const grpc::Status& status) {
    const std::string reason = status.ok() ? "OK" : ReasonOf(status);
    absl::MutexLock lock(&mutex_);
    ++ends_[reason];
    ++num_ended_;
  }

  const v1::GenerateRequest request_;
  const int num_calls_;
  absl::Mutex mutex_;
  std::map<std::string, int> ends_ ABSL_GUARDED_BY(mutex_);
  int num_ended_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Call> calls_;
};

}  // namespace foretoken::testing
