// SPDX-License-Identifier: Apache-2.0
// Reads a drafter's projection, piece by piece, on gRPC's callback API: no method waits for the peer. The reader ends
// with an error as soon as the peer sends a piece of the wrong size, unknown fields out of bounds, or nothing for the
// time of a piece, and when the whole takes too long. A peer that is busy is asked for the same piece again.
//
// Where there is a file of the projection, its bytes are read from there, on a thread of its own, and the peer is asked
// only if they are others.
//
//   auto reader = ProjectionReader::Start(channel, {.digest = digest, .num_bytes = num_bytes},
//                                         {.piece = absl::Seconds(5), .whole = absl::Minutes(20)}, done);
//
// `done` comes exactly once, from a thread of gRPC or the reader's own, also after Cancel. It never comes from inside
// Start or Cancel.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/message_bounds.h"
#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::verifier {

class ProjectionReader {
 public:
  struct Wanted {
    std::string digest;
    size_t num_bytes = 0;
    std::string file;  // that may have the bytes (rpc::ProjectionPath); empty: none
  };
  struct Timeouts {
    absl::Duration piece, whole;
  };
  // Gets the reader's own share of itself too: its owner must free the last share, because that may destroy the
  // channel.
  using Done = std::function<void(absl::StatusOr<std::string> bytes, std::shared_ptr<ProjectionReader> self)>;

  static std::shared_ptr<ProjectionReader> Start(const std::shared_ptr<grpc::Channel>& channel, Wanted wanted,
                                                 Timeouts timeouts, Done done);
  void Cancel();
  // Why the file was not taken, if there is one with other bytes. Final when `done` is called.
  const std::string& file_fault() const { return file_fault_; }
  ~ProjectionReader();

 private:
  ProjectionReader(const std::shared_ptr<grpc::Channel>& channel, Wanted wanted, Timeouts timeouts, Done done);
  // Whether the file has the bytes.
  bool ReadFile();
  void ReadPiece();
  void OnPiece(const grpc::Status& status);
  void End(absl::StatusOr<std::string> bytes);

  // One for all pieces: one for each would hold a share of the channel until after the piece has arrived.
  grpc::TemplatedGenericStub<v1::ReadProjectionRequest, grpc::ByteBuffer> stub_;
  const rpc::MessageBounds bounds_;
  const Wanted wanted_;
  const Timeouts timeouts_;
  const absl::Time give_up_;  // of SteadyNow
  Done done_;
  std::string bytes_;
  std::string file_fault_;
  std::optional<absl::Time> busy_since_;  // the peer has answered nothing else since then
  v1::ReadProjectionRequest request_;
  grpc::ByteBuffer response_;
  absl::Mutex mutex_;
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);  // of the call in flight
  grpc::Alarm pause_ ABSL_GUARDED_BY(mutex_);                             // while the peer is busy
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread file_thread_;
  std::shared_ptr<ProjectionReader> self_;  // until the end: gRPC holds a bare pointer
};

}  // namespace foretoken::verifier
