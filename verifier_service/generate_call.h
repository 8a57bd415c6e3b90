// SPDX-License-Identifier: Apache-2.0
// One Generate call, from its bytes to its status. It belongs to gRPC and to whoever still has news for it; nothing in
// it waits: outputs go to an outbox, and one write at a time takes them from there.
//
//   arrives -> has a place in the queue -> parsed, checked, encoded -> submitted -> outputs -> status
//
// A cancellation or the client's deadline ends it at any of these points and tells the engine.
// Threads: Start on a worker, Deliver on the publisher's thread, the rest on gRPC's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "verifier_service/engine_port.h"
#include "verifier_service/outbox.h"
#include "verifier_service/publisher.h"
#include "verifier_service/request_conversion.h"
#include "verifier_service/served_model.h"
#include "verifier_service/service_metrics.h"

namespace foretoken::verifier {

// What all calls share; outlives them.
struct CallContext {
  ServedModel model;
  EnginePort engine;
  Publisher* publisher = nullptr;
  CallMetrics* metrics = nullptr;
  DrawBits draw_bits;  // from any thread
};

class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  // `on_done` is called last, when gRPC has let go of it.
  static std::shared_ptr<GenerateCall> Make(CallContext* context, Ticket ticket, std::function<void()> on_done);

  // Checks and encodes the request and submits it.
  void Start(QueuePlace place, const grpc::ByteBuffer& request, const std::string& traceparent);
  // Ends the call before anything was submitted.
  void Fail(const absl::Status& status);

 private:
  using Clock = std::chrono::steady_clock;
  struct NextAction {
    bool write = false;
    std::optional<absl::Status> finish = std::nullopt;
  };

  GenerateCall(CallContext* context, Ticket ticket, std::function<void()> on_done);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  absl::Status CheckAndSubmit(QueuePlace place, const grpc::ByteBuffer& bytes, const std::string& traceparent);
  absl::Status Submit(QueuePlace place, GenerationRequest request);
  void Deliver(SampleOutput output);
  void Observe(const SampleOutput& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cancel();
  // What gRPC is to do now, and doing it. At most one write is under way, and Finish is the last.
  NextAction Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const NextAction& action);

  CallContext* const context_;
  const Ticket ticket_;
  const Clock::time_point arrival_ = Clock::now();
  const std::function<void()> on_done_;
  std::shared_ptr<GenerateCall> self_;  // gRPC's reference, until OnDone

  absl::Mutex mutex_;
  std::optional<Outbox> outbox_ ABSL_GUARDED_BY(mutex_);  // once the request is submitted
  std::optional<absl::Status> early_end_
      ABSL_GUARDED_BY(mutex_);  // failed or cancelled: what is not written is dropped
  bool is_submitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::optional<Clock::time_point>> last_tokens_ ABSL_GUARDED_BY(mutex_);  // [samples]
  grpc::ByteBuffer message_;                                                           // of the write under way
};

}  // namespace foretoken::verifier
