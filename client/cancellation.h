// SPDX-License-Identifier: Apache-2.0
// Ends calls from outside, for example at Ctrl-C. One Cancellation may stand behind many calls.
//
//   Cancellation cancellation;
//   std::thread worker([&] { client.Generate(request, print, &cancellation); });
//   cancellation.Cancel();  // Generate returns CANCELLED
//
// Threads: any. It must outlive the calls it is given to.
#pragma once

#include <grpcpp/client_context.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::client {

class Cancellation {
 public:
  // Ends the calls that run now and every later one. Again: nothing more happens.
  void Cancel();
  bool cancelled() const;

 private:
  friend class ScopedCancellable;
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

// Puts a call under a Cancellation, which may be null, while it runs.
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
