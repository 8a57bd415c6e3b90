// SPDX-License-Identifier: Apache-2.0
// A proposer service on a real port, controlled by a test. It can answer with given trees, refuse, delay, lie, send a
// compressed bomb, go silent, never read, die and return at the same port. It keeps true mirrors of its sessions and
// records every breach of the protocol.
//
// It is the fake for tests of the pool and of whole processes. Tests of the engine alone use InProcessProposers.
//
// Example:
//   ScriptedProposer proposer({.method = "ngram"});
//   pool = ProposerPool::Create({*ParseProposerSpec("ngram=static:" + proposer.address())}, ...);
//   proposer.SetBehaviour(ScriptedProposer::Behaviour::kSilent);
//   proposer.Kill();
//   proposer.Start();
//
// Threads: every method may be called from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "foretoken/v1/proposal.grpc.pb.h"

namespace foretoken::testing {

class ScriptedProposer final : private v1::ProposalService::Service {
 public:
  // kAnswerAndLeave ends the stream after each answer with a tree. kCompressedBomb sends a response of kBombBytes that
  // is small on the wire, and ends the stream.
  enum class Behaviour { kAnswer, kAnswerAndLeave, kRefuse, kUnknown, kSilent, kNeverRead, kCompressedBomb };
  static constexpr size_t kBombBytes = size_t{96} << 20;

  struct Options {
    std::string method = "ngram";
    std::string vocabulary_fingerprint;
    uint32_t max_sessions = 0;
    uint64_t max_context_tokens = 0;
    std::vector<std::string> needed_features;
    std::string version = "scripted";
    uint32_t protocol_version = 0;
    std::vector<std::string> features;
    std::string unknown_fields;  // their bytes, behind the known fields of its description
    // Keeps requests for the test to read. Benches that measure time switch it off.
    bool keeps_requests = true;
  };

  // The events that a session has received.
  struct Mirror {
    uint64_t session_id = 0;
    v1::OpenSession open;  // without tokens
    std::vector<uint32_t> token_ids;
    uint32_t node_budget = 0;
  };
  using TreeScript = std::function<v1::TokenTree(const Mirror& mirror)>;

  explicit ScriptedProposer(Options options);
  ~ScriptedProposer() override { Kill(); }

  // "127.0.0.1:port"; the port stays the same for life.
  std::string address() const;
  std::shared_ptr<grpc::Channel> InProcessChannel();
  void Kill();
  void Start();

  void SetBehaviour(Behaviour behaviour);
  // Answers every question with the tree of the script. Default: CountingTree.
  void SetTree(TreeScript script);
  void SetDelay(absl::Duration delay);
  // Sends this response on every open stream. Waits for the first stream.
  void Push(const v1::ProposeResponse& response);

  std::vector<v1::ProposeRequest> Requests() const;
  // The mirrors of the open sessions, in the order of their ids.
  std::vector<Mirror> Mirrors() const;
  int num_streams() const;    // open streams
  int num_describes() const;  // calls of DescribeProposer so far
  int num_bombs() const;      // sent so far
  std::vector<std::string> Breaches() const;

  // A chain that counts up from the last token, with at most node_budget nodes: 7 -> 8, 9, 10.
  static v1::TokenTree CountingTree(const Mirror& mirror);

 private:
  using Stream = grpc::ServerReaderWriter<v1::ProposeResponse, v1::ProposeRequest>;
  struct Connection {
    Stream* stream = nullptr;
    std::map<uint64_t, Mirror> mirrors;
    std::set<uint64_t> used_ids;
  };

  grpc::Status Propose(grpc::ServerContext* context, Stream* stream) override;
  grpc::Status DescribeProposer(grpc::ServerContext* context, const v1::DescribeProposerRequest* request,
                                v1::DescribeProposerResponse* response) override;
  v1::ProposeResponse Hear(Connection& connection, const v1::ProposeRequest& request);
  template <typename Message>
  void Extend(Connection& connection, Mirror& mirror, const Message& message, v1::ProposeResponse& response);
  void SendBomb(grpc::ServerContext* context, Stream* stream);
  void Breach(std::string what) { breaches_.push_back(std::move(what)); }
  bool MayRead(grpc::ServerContext* context) const;

  const Options options_;
  mutable absl::Mutex mutex_;
  Behaviour behaviour_ = Behaviour::kAnswer;
  TreeScript tree_ = CountingTree;
  absl::Duration delay_ = absl::ZeroDuration();
  std::vector<v1::ProposeRequest> requests_;
  std::vector<std::string> breaches_;
  std::set<Connection*> connections_;
  bool has_had_stream_ = false;
  int num_describes_ = 0;
  int num_bombs_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace foretoken::testing
