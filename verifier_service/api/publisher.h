// SPDX-License-Identifier: Apache-2.0
// Carries outputs from the engine's thread to their calls. Publish only hands the batch over. The publisher's own
// thread does the slow work: messages, writes and metrics.
//
//   Publisher publisher;
//   publisher.Subscribe(ticket, [call](SampleOutput output) { call->Deliver(std::move(output)); });
//   publisher.Publish(std::move(outputs));   // the engine, once a step
//
// Publish waits while kMaxBatches batches wait, besides those that are being delivered. So outputs do not pile up if
// the publisher's thread gets too little time. Threads: any. The publisher's thread calls the sinks one at a time and
// in order. A sink must not block, and may call Unsubscribe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

using OutputSink = std::function<void(SampleOutput)>;

class Publisher {
 public:
  static constexpr size_t kMaxBatches = 1024;

  Publisher();
  ~Publisher();  // drops undelivered outputs

  // Sends outputs of this ticket to the sink until Unsubscribe. Outputs without a sink are dropped.
  void Subscribe(Ticket ticket, OutputSink sink);
  // A running call of the sink may outlast Unsubscribe.
  void Unsubscribe(Ticket ticket);

  void Publish(std::vector<SampleOutput> outputs);

 private:
  void Run();
  void Deliver(SampleOutput output);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !batches_.empty(); }
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || batches_.size() < kMaxBatches; }

  absl::Mutex mutex_;
  std::vector<std::vector<SampleOutput>> batches_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex sinks_mutex_;  // a second lock, so that Publish never waits for a delivery
  absl::flat_hash_map<Ticket, OutputSink> sinks_ ABSL_GUARDED_BY(sinks_mutex_);
  std::thread thread_;
};

}  // namespace foretoken::verifier
