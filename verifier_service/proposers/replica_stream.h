// SPDX-License-Identifier: Apache-2.0
// One Propose stream to one replica, on gRPC's callback API: no method waits for the peer. The stream reads as fast as
// its owner allows and writes one message at a time. The owner chooses the messages.
//
// The stream checks an answer before it parses it (common/rpc/message_bounds.h). An answer beyond the bounds ends the
// stream with INVALID_ARGUMENT.
//
// Life: Start; then Write, one at a time, each after the `on_written` of the last; Cancel at any time. `on_end` comes
// exactly once and last, also after Cancel.
//
// Threads: gRPC's threads call the events, one answer at a time. The owner may call Write and Cancel under the lock
// that its events take, because gRPC runs no event inside these calls. The owner serialises Write, Cancel and the end
// of `on_end`.
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
    // Returns the delay before the next read. The peer waits when its flow-control window is full.
    std::function<absl::Duration(const v1::ProposeResponse& response, size_t num_bytes)> on_answer;
    std::function<void()> on_written;
    std::function<void()> on_closing;  // the stream is ending: no Write from here on. Always before on_end.
    // Passes the stream's own share of itself to the owner. A gRPC thread must not destroy the last share: the stream
    // may own the last share of its channel, and the destruction of a process's last channel waits for gRPC's threads.
    std::function<void(const grpc::Status& status, std::shared_ptr<ReplicaStream> self)> on_end;
  };

  // The stream keeps itself alive until on_end. The owner uses its share for Write and Cancel.
  // The first message carries the vocabulary's fingerprint.
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
  absl::Status fault_;          // set when an answer is out of bounds
  Events events_;
  std::unique_ptr<grpc::Alarm> next_read_;
  std::shared_ptr<ReplicaStream> self_;  // until OnDone: gRPC holds a bare pointer
};

}  // namespace foretoken::verifier
