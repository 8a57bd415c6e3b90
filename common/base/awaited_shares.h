// SPDX-License-Identifier: Apache-2.0
// Waits in its destructor until the last share of it is gone, for an owner of what other threads may still use.
//
//   AwaitedShares uses;
//   thread: { const auto use = uses.Share(); ... }
//
// Threads: any. The destructor must not run while its own thread holds a share.
#pragma once

#include <memory>

#include "absl/synchronization/notification.h"

namespace foretoken::base {

class AwaitedShares {
 public:
  AwaitedShares() = default;
  ~AwaitedShares() {
    own_.reset();
    last_is_gone_.WaitForNotification();
  }
  AwaitedShares(const AwaitedShares&) = delete;
  AwaitedShares& operator=(const AwaitedShares&) = delete;

  std::shared_ptr<const void> Share() const { return own_; }

 private:
  absl::Notification last_is_gone_;
  std::shared_ptr<const void> own_{this, [this](const void*) { last_is_gone_.Notify(); }};
};

}  // namespace foretoken::base
