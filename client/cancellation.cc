// SPDX-License-Identifier: Apache-2.0
#include "client/cancellation.h"

namespace foretoken::client {

void Cancellation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

bool Cancellation::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

ScopedCancellable::ScopedCancellable(grpc::ClientContext& call, Cancellation* cancellation)
    : call_(call), cancellation_(cancellation) {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  cancellation_->calls_.insert(&call_);
  if (cancellation_->cancelled_) call_.TryCancel();
}

ScopedCancellable::~ScopedCancellable() {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  cancellation_->calls_.erase(&call_);
}

}  // namespace foretoken::client
