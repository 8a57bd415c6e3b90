// SPDX-License-Identifier: Apache-2.0
// One stream of a verifier. A request is applied, and answered where possible, in the callback that delivers it. While
// a response is on its way further requests are applied but not answered; the next response is made of what is owed
// when the way is free. What a session announces later is answered likewise. Where a verifier does not read and what
// must be told it grows, reading pauses, which is felt over there. A request that is out of bounds ends the stream with
// INVALID_ARGUMENT.
//
// Threads: gRPC calls back on any of its threads, reading and writing at once; the mutex makes them one. The stream
// deletes itself when gRPC is done with it.
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
  // The service outlives the stream. The environment's `announce` is the stream's own business.
  ProposalStream(ProposalService& service, const SessionTable::Environment& environment);
  // Begins to read.
  void Start();
  // Ends the stream when nothing is being sent. Only the first call counts.
  void End(const grpc::Status& status);

 private:
  static constexpr size_t kMaxNotices = 4096;
  // Of a message, on the wire: messages of a larger one are freed.
  static constexpr size_t kMaxKeptBytes = size_t{64} << 10;

  // Leads from sessions, which may announce at any time, to the stream, as long as it lives. Shared with them.
  struct Notifier {
    void Notify(uint64_t session_id);

    absl::Mutex mutex;
    ProposalStream* stream ABSL_GUARDED_BY(mutex);
  };

  ~ProposalStream() override;
  SessionTable::Environment WithNotifier(SessionTable::Environment environment) const;
  void OnNews(uint64_t session_id);
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
  grpc::ByteBuffer request_;   // gRPC's while reading_
  grpc::ByteBuffer response_;  // gRPC's while writing_
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);  // how the stream shall end
};

}  // namespace foretoken::proposer
