// SPDX-License-Identifier: Apache-2.0
// Carries outputs from the engine's thread to whoever waits for them. Publish only hands the batch over; everything
// that costs time (messages, writes, metrics) happens on the publisher's own thread.
//
//   Publisher publisher;
//   publisher.Subscribe(ticket, [call](SampleOutput output) { call->Deliver(std::move(output)); });
//   publisher.Publish(std::move(outputs));   // the engine, once a step
//
// Threads: all methods from any. Sinks are called on the publisher's thread, one at a time, in order, and must not
// block; they may call Unsubscribe.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "verifier_service/engine/request.h"

namespace foretoken::verifier {

using OutputSink = std::function<void(SampleOutput)>;

class Publisher {
 public:
  Publisher();
  ~Publisher();  // what is not delivered by now is dropped

  // Outputs of this ticket go to the sink until it is unsubscribed. Others are dropped.
  void Subscribe(Ticket ticket, OutputSink sink);
  // A call of the sink that runs now may still be running when this returns.
  void Unsubscribe(Ticket ticket);

  void Publish(std::vector<SampleOutput> outputs);

 private:
  void Run();
  void Deliver(SampleOutput output);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !batches_.empty(); }

  absl::Mutex mutex_;
  std::vector<std::vector<SampleOutput>> batches_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex sinks_mutex_;  // its own, so that Publish never waits for a lookup
  absl::flat_hash_map<Ticket, OutputSink> sinks_ ABSL_GUARDED_BY(sinks_mutex_);
  std::thread thread_;
};

}  // namespace foretoken::verifier
