// SPDX-License-Identifier: Apache-2.0
// Shows ThreadSanitizer two orders that gRPC establishes by atomics, in every executable of the tsan build. The work
// before the start of an operation comes before the operation's completion. The work before the release of a call comes
// before the end of the call's server. The functions replace the library's functions as in absl_mutex_for_tsan.cc.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>

namespace {

template <typename Function>
Function* Next(Function*, const char* name) {
  void* const address = dlsym(RTLD_NEXT, name);
  if (address == nullptr) std::abort();
  return reinterpret_cast<Function*>(address);
}

char calls_end;  // stands for the counts that a server keeps of its calls

grpc_event Acquired(const grpc_event& event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t num_ops, void* tag, void* reserved) {
  static const auto next = Next(&grpc_call_start_batch, "grpc_call_start_batch");
  __tsan_release(tag);
  return next(call, ops, num_ops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static const auto next = Next(&grpc_completion_queue_next, "grpc_completion_queue_next");
  return Acquired(next(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline, void* reserved) {
  static const auto next = Next(&grpc_completion_queue_pluck, "grpc_completion_queue_pluck");
  return Acquired(next(queue, tag, deadline, reserved));
}

void grpc_call_unref(grpc_call* call) {
  static const auto next = Next(&grpc_call_unref, "grpc_call_unref");
  __tsan_release(&calls_end);
  next(call);
}

void grpc_server_destroy(grpc_server* server) {
  static const auto next = Next(&grpc_server_destroy, "grpc_server_destroy");
  next(server);
  __tsan_acquire(&calls_end);
}

}  // extern "C"
