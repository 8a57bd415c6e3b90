// SPDX-License-Identifier: Apache-2.0
// A proposer service on a real port that does what a test tells it to: it answers with given trees, refuses, delays,
// lies, goes silent, never reads, dies and returns at the same port. It keeps honest mirrors and writes down every
// breach of the protocol that it sees.
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
  // kAnswerAndLeave ends the stream after each answer with a tree.
  enum class Behaviour { kAnswer, kAnswerAndLeave, kRefuse, kUnknown, kSilent, kNeverRead };

  struct Options {
    std::string method = "ngram";
    std::string vocabulary_fingerprint;
    uint32_t max_sessions = 0;
    uint64_t max_context_tokens = 0;
    std::vector<std::string> needed_features;
    std::string version = "scripted";
    uint32_t protocol_version = 0;
    std::vector<std::string> features;
    // Requests are kept for the test to read; not wanted where time is measured.
    bool keeps_requests = true;
  };

  // What a session has been told.
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
  // Answers every question with the script's tree. By default CountingTree.
  void SetTree(TreeScript script);
  void SetDelay(absl::Duration delay);
  // Says at once, on every open stream, whatever this is.
  void Push(const v1::ProposeResponse& response);

  std::vector<v1::ProposeRequest> Requests() const;
  // What the sessions that are open now have been told, in the order of their ids.
  std::vector<Mirror> Mirrors() const;
  int num_streams() const;    // open now
  int num_describes() const;  // ever asked
  std::vector<std::string> Breaches() const;

  // A chain that counts on from the last token, at most node_budget long: 7 -> 8, 9, 10.
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
  int num_describes_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace foretoken::testing
