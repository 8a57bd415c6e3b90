// SPDX-License-Identifier: Apache-2.0
// What a ProposerPool owns: one lock, the session book under it, and a link per known address, kept alive by a thread.
//
// A link's life: waiting -> describing (DescribeProposer) -> streaming -> waiting, with backoff after every failure.
// The backoff starts afresh only when a stream has brought a good tree and lasted for the backoff's longest time: a
// peer that accepts streams and breaks them is a failing peer, for each of them costs all its sessions' contexts.
//
// Log lines: of each link only a few in a while, and what the peer wrote in them is escaped. They are collected under
// the lock and written by the thread that keeps connections, without it.
//
// Threads: gRPC's events, the engine's calls and the two threads here meet under `mutex`. Nothing waits under it. Waits
// follow the steady clock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/telemetry/line_limit.h"
#include "foretoken/v1/proposal.grpc.pb.h"
#include "spdlog/common.h"
#include "verifier_service/proposers/proposer_pool.h"
#include "verifier_service/proposers/replica_stream.h"
#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {

class ProposerPool::Keeper {
 public:
  Keeper(std::vector<ProposerSpec> specs, ProposerPoolOptions options);
  ~Keeper();

  struct DescribeCall {
    grpc::ClientContext context;
    v1::DescribeProposerRequest request;
    v1::DescribeProposerResponse response;
  };

  // One address of one proposer.
  struct Link {
    uint64_t id = 0;
    uint32_t proposer_idx = 0;
    std::string address;
    std::optional<std::string> dns_name;  // the name it was found under; unset: it was given, and stays
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::ProposalService::Stub> stub;  // of that channel
    absl::Time next_attempt = absl::InfinitePast();   // while neither describing nor streaming
    int num_failures = 0;                             // in a row
    bool was_refused = false;                         // by the last DescribeProposer, because of the vocabulary
    std::string last_complaint;                       // what was logged last, so that it is logged once
    telemetry::LineLimit lines;                       // all that are logged about it
    AnswerPace pace;                                  // of all its streams together
    absl::Time streaming_since;                       // of `stream`
    DescribeCall* describing = nullptr;               // in `describe_calls_`
    std::shared_ptr<ReplicaStream> stream;            // shared with itself until gRPC lets go of it
    ReplicaId replica_id = 0;                         // of `stream`
    std::optional<absl::Time> writing_since;
  };

  // Hands a link's stream its next message, if there is one and no write is in flight.
  void Write(Link& link, absl::Time now);
  void WriteAll(absl::Time now);

  const ProposerPoolOptions options;
  const std::vector<ProposerSpec> specs;  // [proposers]
  std::vector<std::string> names;         // [proposers]

  mutable std::mutex mutex;
  SessionBook book;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Link>> links;  // by id: an event may come for one that is gone
  std::vector<ProposerCounters> counters;                      // [proposers]
  std::condition_variable answered;                            // a replica owes nothing more

 private:
  void Keep();
  bool KeepOnce();  // false: the pool ends
  void Resolve();
  void KeepLink(Link& link, absl::Time now);
  absl::Time NextWake(absl::Time now) const;
  void SetAddresses(uint32_t proposer_idx, const std::string& dns_name, const std::vector<std::string>& addresses);
  Link& AddLink(uint32_t proposer_idx, std::string address, std::shared_ptr<grpc::Channel> channel);

  void Describe(Link& link);
  void OnDescribed(uint64_t link_id, DescribeCall* call, const grpc::Status& status);
  void StartStream(Link& link, const v1::DescribeProposerResponse& description, absl::Time now);
  // Returns how long the next message is not read.
  absl::Duration OnAnswer(uint64_t link_id, ReplicaId replica_id, uint32_t proposer_idx,
                          const v1::ProposeResponse& response);
  void TakeAnswer(Link& link, CheckedAnswer answer, absl::Time now);
  void OnWritten(uint64_t link_id, ReplicaId replica_id);
  void OnClosing(uint64_t link_id, ReplicaId replica_id);
  void OnEnd(uint64_t link_id, const grpc::Status& status, std::shared_ptr<ReplicaStream> stream);
  Link* FindStream(uint64_t link_id, ReplicaId replica_id);

  // `why` has a peer's words quoted only (common/base/error_text.h): it goes into the log.
  // Lets go of the stream, moves its sessions, and stays away for a while.
  void Drop(Link& link, const std::string& why, absl::Time now);
  void Fail(Link& link, const std::string& why, absl::Time now);
  void Complain(Link& link, const std::string& why, absl::Time now);
  void Log(Link& link, spdlog::level::level_enum level, absl::string_view what, absl::Time now);

  struct Line {
    spdlog::level::level_enum level;
    std::string text;
  };
  static void Write(const std::vector<Line>& lines);

  std::mt19937_64 random_;
  uint64_t next_id_ = 1;                                                              // of links and replicas
  int num_calls_ = 0;                                                                 // in gRPC's hands
  absl::flat_hash_map<DescribeCall*, std::unique_ptr<DescribeCall>> describe_calls_;  // in flight
  // What gRPC has let go of and may hold the last share of a channel. Freed without the lock and by a thread of ours:
  // the end of a process's last channel waits for gRPC's threads, which may wait for the lock.
  std::vector<std::shared_ptr<void>> ended_;
  std::vector<Line> lines_;  // to be logged
  bool is_stopping_ = false;
  std::condition_variable wake_;  // of Keep and Resolve, and at the end of the destructor
  std::thread keep_thread_;
  std::thread resolve_thread_;
};

}  // namespace foretoken::verifier
