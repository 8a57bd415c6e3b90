// SPDX-License-Identifier: Apache-2.0
// One Generate call, from its bytes to its status, in the form of its service (call_format.h). gRPC and the publisher
// share the object. No method waits: outputs go to an outbox, and one write at a time takes them from there.
//
//   arrives -> has a place in the queue -> parsed, checked, encoded -> its form is compiled -> its id is free ->
//   submitted
//   -> outputs -> status
//
// A cancellation or the client's deadline ends the call at any of these points, and the call tells the engine. A call
// that has ended frees its request id, even if the engine has not ended the sequences yet. A new call waits a moment
// for an id that is in use, because the cancellation of the old call may arrive late.
// Threads: Start on a worker, Deliver on the publisher's thread, the rest on any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_names.h"
#include "common/rpc/connection_ages.h"
#include "common/tracing/tracer.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "verifier_service/api/call_format.h"
#include "verifier_service/api/call_metrics.h"
#include "verifier_service/api/call_record.h"
#include "verifier_service/api/engine_port.h"
#include "verifier_service/api/outbox.h"
#include "verifier_service/api/publisher.h"
#include "verifier_service/api/request_bounds.h"
#include "verifier_service/api/request_conversion.h"
#include "verifier_service/api/request_registry.h"
#include "verifier_service/api/served_model.h"
#include "verifier_service/api/tenant_queue.h"
#include "verifier_service/api/unread_outputs.h"
#include "verifier_service/grammar/compile_places.h"
#include "verifier_service/grammar/grammar_compiler.h"

namespace foretoken::verifier {

// State shared by all calls. It outlives them, because their owner awaits them (GenerateCallArgs::share).
struct CallContext {
  ServedModel model;
  RequestBounds bounds;
  EnginePort engine;
  Publisher* publisher = nullptr;
  CallMetrics* metrics = nullptr;
  telemetry::LineLimits fault_lines;  // about calls, by the reasons of their errors
  DrawBits draw_bits;
  tracing::Tracer tracer;
  bool traces_steps = false;  // a recorded call's trace has every step
  GrammarCompiler* grammars = nullptr;
  CompilePlaces* compile_places = nullptr;
  TenantQueue* compile_queue = nullptr;
  RequestRegistry requests;
  UnreadOutputs unread;
  std::function<void(Ticket)> end_unread;  // ends the call, whichever method it calls, if it still exists
  rpc::ConnectionAges connections;
  std::atomic<bool> is_draining = false;  // connections close with their last call
};

struct GenerateCallArgs {
  grpc::CallbackServerContext* rpc = nullptr;  // gRPC's context of this call
  Ticket ticket = 0;
  std::string method;          // PACKAGE.SERVICE/METHOD, for traces
  RpcName rpc_name;            // for metrics
  bool may_be_traced = false;  // the client is one of ours
  std::unique_ptr<CallFormat> format;
  std::shared_ptr<const void> share;  // gone after the call
  std::function<void()> on_done;      // runs last, after gRPC has released the call
};

class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  static std::shared_ptr<GenerateCall> Make(CallContext* context, GenerateCallArgs args);

  // The client's deadline, on the engine's clock.
  absl::Time deadline() const { return deadline_; }
  // Registers the call by the names in the message or the metadata, unchecked, so that Abort finds it while it waits.
  // Returns the tenant.
  std::string Register(const grpc::ByteBuffer& request);
  // Returns the number of samples that the request asks for, as far as a glance tells.
  int64_t PeekNumSamples(const grpc::ByteBuffer& request) const;
  // Checks, encodes and submits the request.
  void Start(QueuePlace place, const grpc::ByteBuffer& request);
  // Ends the call with RESOURCE_EXHAUSTED because its client does not read. Does not wait for a write under way.
  void EndUnread(absl::string_view why);
  // Calls EndUnread if the client has not taken the current write within `max_write_time`.
  void EndIfStalled(absl::Duration max_write_time);
  // Ends the call with this status now. Unwritten output is dropped, and the engine drops the request.
  void End(const absl::Status& status);
  // Ends the request with FINISH_REASON_ABORT. The engine never gets a request that still waits for it.
  void Abort();
  // Ends the call with UNAVAILABLE if nothing was generated yet.
  void EndIfNothingGenerated();
  // Asks the engine to end the request. Its finish reason becomes FINISH_REASON_SHUTDOWN.
  void ShutDown();

 private:
  using Clock = std::chrono::steady_clock;
  struct NextAction {
    bool write = false;
    bool linger = false;
    std::optional<absl::Status> finish = std::nullopt;
    std::optional<Ticket> end_unread = std::nullopt;  // of this call or another one
  };

  // A valid request that waits to be submitted.
  struct CheckedRequest {
    QueuePlace place;
    GenerationRequest request;
    std::string echo_text;
    bool sends_reports = false;         // to the client; step reports may also be for the trace alone
    std::optional<GrammarSource> form;  // to compile first
    v1::ResponseFormat format;          // the same in the client's words, for errors
  };

  GenerateCall(CallContext* context, GenerateCallArgs args, CallTrace trace);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  absl::StatusOr<GenerationRequest> Convert(const v1::GenerateRequest& message) const;
  absl::StatusOr<CheckedRequest> Check(QueuePlace place, const grpc::ByteBuffer& bytes);
  // Notes for the log what the call names. Later names replace earlier ones.
  void Name(const RequestName& name);
  absl::Status FindForm(const v1::GenerateRequest& message, CheckedRequest& checked) const;
  // Compiles the request's form, then submits the request.
  void CompileForm(CompilePlaces::Place place);
  // Submits the request as soon as its id is free. Fails the call if the id is still in use at `patience_end`.
  void TrySubmit(Clock::time_point patience_end);
  absl::Status Submit();
  void Deliver(SampleOutput output);
  // Takes the checked request, and opens the outbox for its output.
  CheckedRequest OpenOutbox() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddOutput(SampleOutput output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers an aborted request in the engine's place.
  void AnswerAborted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WhyCancelled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndInEngine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Changes the call under its lock, and does what follows from it.
  void Update(absl::FunctionRef<void()> change);
  // Next and WriteOrFinish choose what gRPC does next; Do does it. At most one write is under way. Finish comes last.
  NextAction Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NextAction WriteOrFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the connection may close with this call.
  bool LeaveConnection() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t NumUnreadBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const NextAction& action);

  const std::shared_ptr<const void> share_;  // first, so that it goes last
  CallContext* const context_;
  grpc::CallbackServerContext* const rpc_;  // until OnDone
  const Ticket ticket_;
  const absl::Time deadline_;
  const std::string peer_;
  const rpc::CallNames names_;
  const std::function<void()> on_done_;
  const tracing::TraceContext trace_context_;  // of the call's span
  const bool is_traced_;
  std::shared_ptr<GenerateCall> self_;  // gRPC's reference, until OnDone

  const std::unique_ptr<CallFormat> format_;  // Check uses it without the lock, before anything is submitted

  absl::Mutex mutex_;
  CallRecord record_ ABSL_GUARDED_BY(mutex_);
  std::optional<CheckedRequest> checked_ ABSL_GUARDED_BY(mutex_);  // until submitted, or until the call ends
  std::optional<Outbox> outbox_ ABSL_GUARDED_BY(mutex_);           // set from the submission on
  std::optional<RequestRegistry::Registration> registration_ ABSL_GUARDED_BY(mutex_);  // until the call ends
  std::optional<absl::Status> early_end_ ABSL_GUARDED_BY(mutex_);  // failed or cancelled: unwritten output is dropped
  bool sends_reports_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_submitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_unwanted_ ABSL_GUARDED_BY(mutex_) = false;   // the request ends as soon as it is known
  bool is_shut_down_ ABSL_GUARDED_BY(mutex_) = false;  // the server's end is the reason for the abort
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point write_began_ ABSL_GUARDED_BY(mutex_);  // while is_writing_
  size_t num_message_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // while is_writing_
  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;          // counts no longer as a call of its connection
  bool has_lingered_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer message_;  // of the write under way
  // An alarm that is set must not be set again before it goes off, so each purpose has its own.
  grpc::Alarm retry_alarm_;   // for the next TrySubmit
  grpc::Alarm linger_alarm_;  // for a lingering status
};

}  // namespace foretoken::verifier
