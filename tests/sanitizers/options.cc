// SPDX-License-Identifier: Apache-2.0
// What the sanitizers are told, in every executable of their builds, however it is started.
//
// The distribution's gRPC, Protobuf and Abseil are not instrumented. AddressSanitizer still sees all their heap.
// ThreadSanitizer sees of them what they call of the C library, their locks (absl_mutex_for_tsan.cc) and that an
// operation comes before its completion (grpc_for_tsan.cc), but neither their own reads and writes nor their atomics.
// So it finds races among our own lines, and may take for one what gRPC orders by atomics: the suppressions are for
// that.
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
      "called_from_lib:libabsl_cord_internal.so\n"
      // The order of locks that absl's deadlock detector knows, guarded by a spin lock.
      "called_from_lib:libabsl_graphcycles_internal.so\n"
      "called_from_lib:libabsl_status.so\n"
      "called_from_lib:libabsl_strings.so\n"
      "called_from_lib:libabsl_time.so\n"
      "called_from_lib:libabsl_time_zone.so\n"
      // Bytes and a status that the libraries made, read by headers of their own; and the end of what gRPC allocates
      // by.
      "race:google::protobuf::internal::EpsCopyInputStream::\n"
      "race:GrpcMemoryAllocatorImpl::Shutdown\n"
      "race:CallOpClientRecvStatus::FinishOp\n"
      // The last thing that happens to a call, after all its other callbacks, which gRPC counts down in an atomic; and
      // a cancellation, which gRPC brings from wherever it notices. Hides what OnDone, OnCancel and the destructors of
      // calls do with the calls, no more; AddressSanitizer watches their lives.
      "race:Impl::CallOnDone\n"
      "race:ClientCallbackReaderWriterImpl*::MaybeFinish\n"
      "race:ReplicaStream::~ReplicaStream\n"
      "race:GenerateCall::~GenerateCall\n"
      "race:GenerateCall::OnCancel\n";
}

}  // extern "C"
