// SPDX-License-Identifier: Apache-2.0
// One Generate call, from its bytes to its status. It belongs to gRPC and to whoever still has news for it; nothing in
// it waits: outputs go to an outbox, and one write at a time takes them from there.
//
//   arrives -> has a place in the queue -> parsed, checked, encoded -> its id is free -> submitted -> outputs -> status
//
// A cancellation or the client's deadline ends it at any of these points and tells the engine. When a call has ended,
// its request id is free, although the engine may only be about to end its sequences. A new call waits a moment for an
// id that is in use: the end of the old one may be on its way.
// Threads: Start on a worker, Deliver on the publisher's thread, the rest on any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "verifier_service/api/call_record.h"
#include "verifier_service/api/engine_port.h"
#include "verifier_service/api/outbox.h"
#include "verifier_service/api/publisher.h"
#include "verifier_service/api/request_bounds.h"
#include "verifier_service/api/request_conversion.h"
#include "verifier_service/api/request_registry.h"
#include "verifier_service/api/served_model.h"
#include "verifier_service/api/service_metrics.h"
#include "verifier_service/api/unread_outputs.h"

namespace foretoken::verifier {

// What all calls share; outlives them.
struct CallContext {
  ServedModel model;
  RequestBounds bounds;
  EnginePort engine;
  Publisher* publisher = nullptr;
  CallMetrics* metrics = nullptr;
  DrawBits draw_bits;
  RequestRegistry requests;
  UnreadOutputs unread;
  std::function<void(Ticket)> end_unread;  // GenerateCall::EndUnread of the call, if it still is
};

class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  // `rpc` is gRPC's, of this call. `on_done` is called last, when gRPC has let go of the call.
  static std::shared_ptr<GenerateCall> Make(CallContext* context, grpc::CallbackServerContext* rpc, Ticket ticket,
                                            std::function<void()> on_done);

  // Checks and encodes the request and submits it.
  void Start(QueuePlace place, const grpc::ByteBuffer& request, const std::string& traceparent);
  // Ends a call whose client does not read, with RESOURCE_EXHAUSTED, whatever write is under way.
  void EndUnread(absl::string_view why);
  // The same where the client has not taken a write for so long.
  void EndIfStalled(absl::Duration max_write_time);
  // The call ends with this status, now: what is not written is dropped, and the engine drops its request.
  void End(const absl::Status& status);
  // The engine ends its request, with FINISH_REASON_ABORT.
  void Abort();
  // The call ends with UNAVAILABLE if nothing was generated yet.
  void EndIfNothingGenerated();
  // The engine ends its request, with FINISH_REASON_SHUTDOWN.
  void ShutDown();

 private:
  using Clock = CallRecord::Clock;
  struct NextAction {
    bool write = false;
    std::optional<absl::Status> finish = std::nullopt;
    std::optional<Ticket> end_unread = std::nullopt;  // of this call, or another
  };

  // What is to be submitted.
  struct CheckedRequest {
    QueuePlace place;
    GenerationRequest request;
    std::string echo_text;
  };

  GenerateCall(CallContext* context, grpc::CallbackServerContext* rpc, Ticket ticket, std::function<void()> on_done);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  absl::StatusOr<CheckedRequest> Check(QueuePlace place, const grpc::ByteBuffer& bytes,
                                       const std::string& traceparent) const;
  // Submits once the request's id is free, if that is soon.
  void TrySubmit(Clock::time_point patience_end);
  absl::Status Submit();
  void Deliver(SampleOutput output);
  absl::Status WhyCancelled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndInEngine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What gRPC is to do now, and doing it. At most one write is under way, and Finish is the last.
  NextAction Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NextAction WriteOrFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t NumUnreadBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const NextAction& action);

  CallContext* const context_;
  grpc::CallbackServerContext* const rpc_;  // until OnDone
  const Ticket ticket_;
  const std::function<void()> on_done_;
  std::shared_ptr<GenerateCall> self_;  // gRPC's reference, until OnDone

  absl::Mutex mutex_;
  CallRecord record_ ABSL_GUARDED_BY(mutex_);
  std::optional<CheckedRequest> checked_ ABSL_GUARDED_BY(mutex_);  // until it is submitted or the call has ended
  std::optional<Outbox> outbox_ ABSL_GUARDED_BY(mutex_);           // once the request is submitted
  std::optional<RequestRegistry::Registration> registration_ ABSL_GUARDED_BY(mutex_);  // until the call has ended
  std::optional<absl::Status> early_end_
      ABSL_GUARDED_BY(mutex_);  // failed or cancelled: what is not written is dropped
  bool is_submitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_unwanted_ ABSL_GUARDED_BY(mutex_) = false;   // the engine is to end it, as soon as it has it
  bool is_shut_down_ ABSL_GUARDED_BY(mutex_) = false;  // that is why the engine ends it
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point write_began_ ABSL_GUARDED_BY(mutex_);  // while is_writing_
  size_t num_message_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // likewise
  bool is_cancelling_ ABSL_GUARDED_BY(mutex_) = false;     // gRPC is being told to drop the write, and needs rpc_
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Alarm alarm_;         // for the next TrySubmit
  grpc::ByteBuffer message_;  // of the write under way
};

}  // namespace foretoken::verifier
