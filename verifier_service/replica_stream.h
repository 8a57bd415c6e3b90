// SPDX-License-Identifier: Apache-2.0
// One Propose stream to one replica, on gRPC's callback API: nothing here ever waits for the peer. It reads all the
// time and writes one message at a time; what is written when is its owner's business.
//
// Life: Start; then Write while IsWriting is false; Cancel at any time. `on_end` comes exactly once, last, also after
// Cancel, and when the stream's own share of itself is gone.
//
// Threads: the events come on gRPC's threads, one answer at a time. Write and Cancel may be called under the same lock
// that the events take: gRPC runs no event inside a call of ours. The owner serialises Write, Cancel and the end of
// `on_end`.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::verifier {

class ReplicaStream final : public grpc::ClientBidiReactor<v1::ProposeRequest, v1::ProposeResponse> {
 public:
  struct Events {
    std::function<void(const v1::ProposeResponse& response)> on_answer;
    std::function<void()> on_written;
    std::function<void()> on_closing;  // the peer is gone: Write no more. Always before on_end.
    std::function<void(const grpc::Status& status)> on_end;
  };

  // The stream keeps itself alive until on_end; the owner's share is for Write and Cancel.
  static std::shared_ptr<ReplicaStream> Start(v1::ProposalService::Stub& stub, Events events);

  // Not while a write is in flight, and not after on_closing.
  void Write(v1::ProposeRequest request);
  void Cancel() { context_.TryCancel(); }

 private:
  explicit ReplicaStream(Events events) : events_(std::move(events)) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  v1::ProposeRequest request_;    // of the write in flight
  v1::ProposeResponse response_;  // of the read in flight
  const Events events_;
  std::shared_ptr<ReplicaStream> self_;  // until OnDone: gRPC holds a bare pointer
};

}  // namespace foretoken::verifier
