// SPDX-License-Identifier: Apache-2.0
// Ends running calls from outside, for example at Ctrl-C. One Cancellation may control many calls.
//
//   Cancellation cancellation;
//   std::thread worker([&] { client.Generate(request, print, &cancellation); });
//   cancellation.Cancel();  // Generate returns CANCELLED
//
// Threads: any. The Cancellation must outlive its calls.
#pragma once

#include <grpcpp/client_context.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::client {

class Cancellation {
 public:
  // Ends all running calls and every later call. Further calls of Cancel change nothing.
  void Cancel();
  bool cancelled() const;

 private:
  friend class ScopedCancellable;
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

// Connects a call to a Cancellation for the object's lifetime. A null Cancellation has no effect.
class ScopedCancellable {
 public:
  ScopedCancellable(grpc::ClientContext& call, Cancellation* cancellation);
  ~ScopedCancellable();
  ScopedCancellable(const ScopedCancellable&) = delete;
  ScopedCancellable& operator=(const ScopedCancellable&) = delete;

 private:
  grpc::ClientContext& call_;
  Cancellation* const cancellation_;
};

}  // namespace foretoken::client
