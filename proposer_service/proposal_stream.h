// SPDX-License-Identifier: Apache-2.0
// One stream of a verifier. The stream applies a request, and answers it where possible, in the callback that delivers
// it. While gRPC writes a response, the stream applies further requests and does not answer them. It answers all of
// them together when the write is done. It answers announcements of sessions in the same way. If a verifier does not
// read and its notices pile up, the stream stops reading, and gRPC's flow control stops the verifier. A request that is
// out of bounds ends the stream with INVALID_ARGUMENT. An idle stream keeps no message.
//
// Threads: gRPC calls back on any of its threads, reading and writing at once; a mutex serialises the callbacks. The
// stream parses a request outside of the mutex, because a proposer's thread waits for the mutex to announce a tree. The
// stream deletes itself when gRPC is done with it.
#pragma once

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "foretoken/v1/proposal.grpc.pb.h"
#include "proposer_service/session_table.h"

namespace foretoken::proposer {

class ProposalService;

class ProposalStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // The service outlives the stream. The stream sets the environment's `announce` itself.
  ProposalStream(ProposalService& service, const SessionTable::Environment& environment);
  // Begins to read.
  void Start();
  // Ends the stream with this status after the current write. Only the first call counts.
  void End(const grpc::Status& status);

 private:
  static constexpr size_t kNoticesThatPauseReading = 4096;

  // Carries the announcements of sessions to the stream. Sessions share it, and it may outlive the stream.
  struct Notifier {
    void Notify(uint64_t session_id);

    absl::Mutex mutex;
    ProposalStream* stream ABSL_GUARDED_BY(mutex);
  };

  ~ProposalStream() override;
  SessionTable::Environment WithNotifier(SessionTable::Environment environment) const;
  void OnAnnouncement(uint64_t session_id);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void WriteOrFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ProposalService& service_;
  const std::shared_ptr<Notifier> notifier_;
  absl::Mutex mutex_;
  SessionTable table_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer request_;   // while reading_ gRPC owns it, and then OnReadDone
  grpc::ByteBuffer response_;  // gRPC owns it while writing_
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);  // the status that ends the stream
};

}  // namespace foretoken::proposer
