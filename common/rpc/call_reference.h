// SPDX-License-Identifier: Apache-2.0
// Keeps gRPC's part of a call, so that any thread can cancel the call, also while it ends.
//
//   std::optional<CallReference> call;
//   {
//     absl::MutexLock lock(&mutex_);
//     if (is_writing_) call.emplace(*context_);  // before OnDone, so the context is still there
//   }
//   if (call) call->Cancel(status);  // without the lock, because gRPC may call the call's reactor
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpc/grpc.h"
#include "grpcpp/server_context.h"

namespace foretoken::rpc {

class CallReference {
 public:
  explicit CallReference(grpc::CallbackServerContext& context) : call_(context.c_call()) { grpc_call_ref(call_); }
  CallReference(CallReference&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  CallReference& operator=(CallReference&&) = delete;
  ~CallReference() {
    if (call_ != nullptr) grpc_call_unref(call_);
  }

  // The client gets the status, also if it takes no more messages. Does nothing to a call that has ended.
  void Cancel(const absl::Status& status) const {
    grpc_call_cancel_with_status(call_, static_cast<grpc_status_code>(status.raw_code()),
                                 std::string(status.message()).c_str(), nullptr);
  }

 private:
  grpc_call* call_;
};

}  // namespace foretoken::rpc
