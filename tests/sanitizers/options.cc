// SPDX-License-Identifier: Apache-2.0
// What the sanitizers are told, in every executable of their builds, however it is started.
//
// The distribution's gRPC, Protobuf and Abseil are not instrumented. AddressSanitizer still sees all their heap.
// ThreadSanitizer sees of them what they call of the C library, and their locks (see absl_mutex_for_tsan.cc), but
// neither their own reads and writes nor their atomics: it finds races among our own lines, orders them by our locks,
// our atomics and gRPC's locks, and misses that gRPC also orders by atomics. The suppressions make up for that alone.
extern "C" {

const char* __asan_default_options() { return "detect_stack_use_after_return=1"; }

const char* __ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }

const char* __lsan_default_suppressions() {
  return
      // Ten bytes for each name that gRPC's resolver has looked up.
      "leak:libcares\n";
}

const char* __tsan_default_suppressions() {
  return
      // Memory that these allocate, copy or free for another of their threads, which they know by their atomics.
      // What our lines do to any memory is still watched.
      "called_from_lib:libgpr.so\n"
      "called_from_lib:libgrpc.so\n"
      "called_from_lib:libgrpc++.so\n"
      "called_from_lib:libabsl_cord.so\n"
      "called_from_lib:libabsl_status.so\n"
      "called_from_lib:libabsl_strings.so\n"
      "called_from_lib:libabsl_time.so\n"
      // The last thing that happens to a call, after all its other callbacks: gRPC counts those down in an atomic.
      // Hides what our OnDone does, no more.
      "race:ServerCallbackReaderWriterImpl::CallOnDone\n";
}

}  // extern "C"
