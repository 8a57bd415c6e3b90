// SPDX-License-Identifier: Apache-2.0
// One Propose stream to one replica, on gRPC's callback API: nothing here ever waits for the peer. It reads as
// fast as its owner allows and writes one message at a time; what is written when is its owner's business.
//
// An answer is checked before it is parsed (common/rpc/message_bounds.h). One that is out of bounds ends the stream
// with INVALID_ARGUMENT.
//
// Life: Start; then Write while IsWriting is false; Cancel at any time. `on_end` comes exactly once, last, also after
// Cancel.
//
// Threads: the events come on gRPC's threads, one answer at a time. Write and Cancel may be called under the same lock
// that the events take: gRPC runs no event inside a call of ours. The owner serialises Write, Cancel and the end of
// `on_end`.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/message_bounds.h"
#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::verifier {

class ReplicaStream final : public grpc::ClientBidiReactor<v1::ProposeRequest, grpc::ByteBuffer> {
 public:
  struct Events {
    // Returns how long the next message is not read; the peer waits when its window is full.
    std::function<absl::Duration(const v1::ProposeResponse& response)> on_answer;
    std::function<void()> on_written;
    std::function<void()> on_closing;  // the peer is gone: Write no more. Always before on_end.
    // Hands over the stream's own share of itself. The last share must not be given up on a gRPC thread: with the
    // stream may go its channel, and the last channel of a process waits for gRPC's threads.
    std::function<void(const grpc::Status& status, std::shared_ptr<ReplicaStream> self)> on_end;
  };

  // The stream keeps itself alive until on_end; the owner's share is for Write and Cancel.
  // The vocabulary is told with the first message.
  static std::shared_ptr<ReplicaStream> Start(const std::shared_ptr<grpc::Channel>& channel,
                                              std::string vocabulary_fingerprint, Events events);

  // Not while a write is in flight, and not after on_closing.
  void Write(v1::ProposeRequest request);
  void Cancel() { context_.TryCancel(); }

 private:
  ReplicaStream(std::string vocabulary_fingerprint, Events events);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  const rpc::MessageBounds bounds_;
  std::string untold_vocabulary_;
  v1::ProposeRequest request_;  // of the write in flight
  grpc::ByteBuffer response_;   // of the read in flight
  absl::Status fault_;          // of an answer
  Events events_;
  grpc::Alarm next_read_;
  std::shared_ptr<ReplicaStream> self_;  // until OnDone: gRPC holds a bare pointer
};

}  // namespace foretoken::verifier
