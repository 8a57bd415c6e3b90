// SPDX-License-Identifier: Apache-2.0
// The options of the sanitizers, in every executable of their builds.
//
// The distribution's gRPC, Protobuf and Abseil are not instrumented. AddressSanitizer still sees all their heap.
// ThreadSanitizer sees their calls of the C library, their locks (absl_mutex_for_tsan.cc) and the order of a call's
// operations and reactions (grpc_for_tsan.cc). It sees neither their own reads and writes nor their atomics. So it
// finds races in our code, but it may also report accesses that gRPC orders by atomics. The suppressions below
// hide such reports.
extern "C" {

const char* __asan_default_options() { return "detect_stack_use_after_return=1"; }

const char* __ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }

// The first race ends the process. Else a process that a test kills would hide its races.
const char* __tsan_default_options() { return "halt_on_error=1"; }

const char* __lsan_default_suppressions() {
  return
      // Ten bytes for each name that gRPC's resolver has looked up.
      "leak:libcares\n";
}

const char* __tsan_default_suppressions() {
  return
      // Memory that these libraries allocate, copy or free for another of their threads, in an order given by their
      // atomics. Accesses of our own code are still checked.
      "called_from_lib:libgpr.so\n"
      "called_from_lib:libgrpc.so\n"
      "called_from_lib:libgrpc++.so\n"
      // TLS connections of gRPC's, which it passes between its threads.
      "race:libssl.so\n"
      "race:libcrypto.so\n"
      // Threads of gRPC's own, which may still run when a process ends.
      "thread:grpc_core::Thread::Thread\n"
      "called_from_lib:libabsl_cord.so\n"
      "called_from_lib:libabsl_cord_internal.so\n"
      // The order of locks that absl's deadlock detector knows, guarded by a spin lock.
      "called_from_lib:libabsl_graphcycles_internal.so\n"
      // The shared random generators, made by the first thread that asks.
      "called_from_lib:libabsl_random_internal_pool_urbg.so\n"
      "called_from_lib:libabsl_status.so\n"
      "called_from_lib:libabsl_strings.so\n"
      "called_from_lib:libabsl_time.so\n"
      "called_from_lib:libabsl_time_zone.so\n"
      // Bytes and a status that the libraries made and that inline code of their headers reads, and the end of gRPC's
      // allocator.
      "race:google::protobuf::internal::EpsCopyInputStream::\n"
      "race:GrpcMemoryAllocatorImpl::Shutdown\n"
      "race:CallOpClientRecvStatus::FinishOp\n";
}

}  // extern "C"
