// SPDX-License-Identifier: Apache-2.0
// The state of a ProposerPool: one lock, the session book under the lock, and one link per known address. A thread
// keeps the links connected.
//
// A link's life: waiting -> describing (DescribeProposer, and ReadProjection if needed) -> streaming -> waiting, with
// backoff after every failure. A replica that cannot be reached has a short backoff. The backoff of broken streams is
// longer and resets only if a stream delivered a good tree and lasted for the backoff's longest delay. A peer that
// accepts streams and breaks them counts as failing, because each stream costs the contexts of all its sessions.
//
// After silence the next attempt uses a new connection. On the old one TCP sends lost packets again after pauses that
// double, so it would stay silent for as long again after the network has healed.
//
// Log lines: the rate per link is limited, and the peer's words are escaped. Threads collect the lines under the lock.
// The thread that keeps connections writes them without the lock.
//
// Threads: gRPC's events, the engine's calls and the two threads here share `mutex`. No thread waits while it holds the
// lock. Timeouts follow the steady clock. If no name server answers, a lookup of names takes half a minute. The
// destructor does not wait for that. The thread that looks up names owns its data (Lookups), and may outlive the
// keeper.
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

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "common/telemetry/line_limit.h"
#include "foretoken/v1/proposal.grpc.pb.h"
#include "spdlog/common.h"
#include "verifier_service/proposers/projection_reader.h"
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
    grpc::ByteBuffer response;
  };

  // One address of one proposer.
  struct Link {
    uint64_t id = 0;
    uint32_t proposer_idx = 0;
    std::string address;
    std::optional<std::string> dns_name;  // the name that resolved to it; unset: a static address
    std::shared_ptr<grpc::Channel> channel;
    absl::Time next_attempt = absl::InfinitePast();  // used while neither describing nor streaming
    int num_failures = 0;                            // broken streams and wrong descriptions in a row
    int num_unreached = 0;                           // attempts in a row without an answer
    bool was_refused = false;                        // the last DescribeProposer refused our vocabulary
    std::string last_complaint;                      // the last logged reason; it is not logged again
    telemetry::LineLimit lines;                      // limits the log lines about this link
    AnswerPace pace;                                 // over all its streams
    absl::Time streaming_since;                      // start of `stream`
    DescribeCall* describing = nullptr;              // in `describe_calls_`
    std::shared_ptr<ReplicaStream> stream;           // shares itself until gRPC releases it
    ReplicaId replica_id = 0;                        // of `stream`
    FeatureSource features;                          // that `stream` needs; null: none
    std::string features_name;                       // of the features that the last stream needed
    std::shared_ptr<ProjectionReader> reading;       // shares itself until gRPC releases it
    std::string read_features;                       // the name of the features that `reading` reads for
    std::optional<absl::Time> writing_since;
  };

  // Writes the next message of a link's stream, if there is one and no write is in flight.
  void Write(Link& link, absl::Time now);
  void WriteAll(absl::Time now);
  std::vector<FeatureSource> FeatureSources(absl::Time now);
  uint32_t ReadersOf(const FeatureSource& wanted) const;
  // Ends the streams that need these features, and starts none until they are forgotten.
  void RefuseFeatures(const FeatureSource& source, const std::string& why, absl::Time now);

  const ProposerPoolOptions options;
  const std::vector<ProposerSpec> specs;  // [proposers]
  std::vector<std::string> names;         // [proposers]

  mutable std::mutex mutex;
  SessionBook book;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Link>> links;  // by id, because events may come for a removed link
  std::vector<ProposerCounters> counters;                      // [proposers]
  std::condition_variable answered;                            // signalled when a replica has no due answer left

 private:
  // A proposer that answers but does not match counts as having failed this many times. Only another proposer at its
  // address can match, so the pool asks rarely.
  static constexpr int kSeldom = 30;

  void Keep();
  bool KeepOnce();  // false: the pool is being destroyed
  // What the thread that looks up names has of its own, since it may outlive the keeper.
  struct Lookups {
    struct Name {
      uint32_t proposer_idx = 0;
      std::string method, dns_name;
      std::string trouble;  // that the log has named
    };
    std::vector<Name> names;
    NameResolver resolve;
    absl::Duration period;
    std::mutex mutex;  // locked before Keeper::mutex
    std::condition_variable changed;
    Keeper* keeper = nullptr;  // null: it is being destroyed
    bool has_ended = false;
  };
  static void Resolve(Lookups& lookups);
  void Warn(std::string text);
  void KeepLink(Link& link, absl::Time now);
  absl::Time NextWake(absl::Time now) const;
  // Known addresses stay as long as the name has them. New ones fill the room that is left.
  void SetAddresses(uint32_t proposer_idx, const std::string& dns_name, const std::vector<std::string>& addresses);
  Link& AddLink(uint32_t proposer_idx, std::string address, std::shared_ptr<grpc::Channel> channel);

  void Describe(Link& link);
  void OnDescribed(uint64_t link_id, DescribeCall* call, grpc::Status status);
  // Starts the stream, as soon as the proposer's projection has been read if it has one.
  void PrepareStream(Link& link, const v1::DescribeProposerResponse& description, absl::Time now);
  struct NamedFeatures {
    std::string name;
    speculation::TargetFeatures features;
  };
  void OnProjection(uint64_t link_id, const v1::DescribeProposerResponse& description,
                    std::shared_ptr<ProjectionReader> reader, const absl::Status& status, NamedFeatures features);
  bool HasRoomFor(const std::string& name, absl::Time now);
  bool IsRead(const std::string& name) const;  // a link reads the projection of these features
  // Starts the stream, or refuses the proposer if the engine makes as many other kinds of features as it may.
  void UseFeatures(Link& link, const v1::DescribeProposerResponse& description, NamedFeatures features, absl::Time now);
  void DropUnusedSources(absl::Time now);
  // Forgets the features that the link's last stream needed, unless a stream needs them.
  void DropSourceOf(Link& link);
  void StartStream(Link& link, const v1::DescribeProposerResponse& description, FeatureSource features, absl::Time now);
  // Returns the delay before the next read.
  absl::Duration OnAnswer(uint64_t link_id, ReplicaId replica_id, uint32_t proposer_idx,
                          const v1::ProposeResponse& response, size_t num_bytes);
  void TakeAnswer(Link& link, CheckedAnswer answer, absl::Time now);
  void OnWritten(uint64_t link_id, ReplicaId replica_id);
  void OnClosing(uint64_t link_id, ReplicaId replica_id);
  void OnEnd(uint64_t link_id, const grpc::Status& status, std::shared_ptr<ReplicaStream> stream);
  Link* FindStream(uint64_t link_id, ReplicaId replica_id);

  // `why` goes into the log, so it holds a peer's words only in quoted form (common/base/error_text.h).
  // Drop releases the stream, moves its sessions, and starts the backoff.
  void Drop(Link& link, const std::string& why, absl::Time now);
  void Fail(Link& link, const std::string& why, absl::Time now);
  void FailToReach(Link& link, const std::string& why, absl::Time now);
  void TryAgain(Link& link, const Backoff& backoff, int num_failures, const std::string& why, absl::Time now);
  void Reconnect(Link& link);
  void Complain(Link& link, const std::string& why, absl::Time now);
  void Log(Link& link, spdlog::level::level_enum level, absl::string_view what, absl::Time now);

  const rpc::MessageBounds description_bounds_;

  struct Line {
    spdlog::level::level_enum level;
    std::string text;
  };
  static void Write(const std::vector<Line>& lines);

  struct Source {
    FeatureSource source;
    uint32_t readers = 0;  // proposers, as bits, of which a replica has needed it
    absl::Time last_used;
    std::string refusal = {};  // why the engine has refused it; empty: it has not
  };
  absl::btree_map<std::string, Source> sources_;  // by what proposers announce, so that equal ones share one

  std::mt19937_64 random_;
  uint64_t next_id_ = 1;  // of links and replicas
  int num_calls_ = 0;     // calls and streams that gRPC holds
  absl::flat_hash_map<DescribeCall*, std::unique_ptr<DescribeCall>> describe_calls_;  // in flight
  // Objects that gRPC has released and that may own the last share of a channel. The thread that keeps connections
  // frees them without the lock: the destruction of a process's last channel waits for gRPC's threads, and those may
  // wait for the lock.
  std::vector<std::shared_ptr<void>> ended_;
  std::vector<Line> lines_;                     // waiting to be logged
  absl::btree_set<std::string> crowded_names_;  // that had more addresses than are used; logged once each
  bool is_stopping_ = false;
  absl::Time kept_at_ = absl::InfinitePast();
  absl::Time went_on_at_ = absl::InfinitePast();  // when the process had stood still
  std::condition_variable wake_;                  // wakes Keep and the destructor
  std::thread keep_thread_;
  const std::shared_ptr<Lookups> lookups_ = std::make_shared<Lookups>();
};

}  // namespace foretoken::verifier
