// SPDX-License-Identifier: Apache-2.0
// Shows ThreadSanitizer orders that gRPC establishes by atomics, in every executable of the tsan build. The work before
// the start of an operation comes before the operation's completion. The work before the release of a call comes before
// the end of the call's server. The start of a server's call comes before its OnCancel, and all its reactions come
// before its OnDone: they count atomics down, and where the library finds zero, the thread must be seen to read it. The
// functions replace the library's functions as in absl_mutex_for_tsan.cc.
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>

#include "grpcpp/support/server_callback.h"
#include "tests/sanitizers/library_function.h"

namespace {

char calls_end;  // stands for the counts that a server keeps of its calls

grpc_event Acquired(const grpc_event& event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t num_ops, void* tag, void* reserved) {
  static const auto next = LibraryFunction(&grpc_call_start_batch);
  __tsan_release(tag);
  return next(call, ops, num_ops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static const auto next = LibraryFunction(&grpc_completion_queue_next);
  return Acquired(next(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline, void* reserved) {
  static const auto next = LibraryFunction(&grpc_completion_queue_pluck);
  return Acquired(next(queue, tag, deadline, reserved));
}

void grpc_call_unref(grpc_call* call) {
  static const auto next = LibraryFunction(&grpc_call_unref);
  __tsan_release(&calls_end);
  next(call);
}

void grpc_server_destroy(grpc_server* server) {
  static const auto next = LibraryFunction(&grpc_server_destroy);
  next(server);
  __tsan_acquire(&calls_end);
}

}  // extern "C"

namespace grpc::internal {

// Runs a reactor's OnCancel in its place, once. The library counts this reaction down itself, behind OnCancel.
class AnnouncedCancellation : public ServerReactor {
 public:
  AnnouncedCancellation(ServerReactor* reactor, std::atomic_int* count) : reactor_(reactor), count_(count) {}
  void OnCancel() override {
    reactor_->OnCancel();
    count_->fetch_add(0, std::memory_order_release);
    delete this;
  }
  void OnDone() override {}
  bool InternalInlineable() override { return reactor_->InternalInlineable(); }

 private:
  ServerReactor* const reactor_;
  std::atomic_int* const count_;
};

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static const auto next = LibraryFunction(&ServerCallbackCall::CallOnCancel);
  on_cancel_conditions_remaining_.load(std::memory_order_acquire);
  (this->*next)(new AnnouncedCancellation(reactor, &callbacks_outstanding_));
}

void ServerCallbackCall::ScheduleOnDone(bool is_inline) {
  static const auto next = LibraryFunction(&ServerCallbackCall::ScheduleOnDone);
  callbacks_outstanding_.load(std::memory_order_acquire);
  (this->*next)(is_inline);
}

}  // namespace grpc::internal
