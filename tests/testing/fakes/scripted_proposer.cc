// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/scripted_proposer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace foretoken::testing {
namespace {

constexpr size_t kMaxPieceBytes = 64 * 1024;
constexpr absl::Duration kMaxWaitForStream = absl::Seconds(30);

template <typename Message>
size_t TokenBytes(const Message& message) {
  Message only_tokens;
  *only_tokens.mutable_token_ids() = message.token_ids();
  return only_tokens.ByteSizeLong();
}

}  // namespace

ScriptedProposer::ScriptedProposer(Options options) : options_(std::move(options)) { Start(); }

void ScriptedProposer::Start() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // 0: accept any number of pings
  builder.SetMaxSendMessageSize(-1);                               // any size
  builder.RegisterService(this);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  absl::MutexLock lock(&mutex_);
  if (server == nullptr || port == 0) return Breach("the server did not start");
  port_ = port;
  server_ = std::move(server);
}

void ScriptedProposer::Kill() {
  std::unique_ptr<grpc::Server> server;
  {
    absl::MutexLock lock(&mutex_);
    server = std::move(server_);
  }
  if (server == nullptr) return;
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
}

std::string ScriptedProposer::address() const {
  absl::MutexLock lock(&mutex_);
  return absl::StrCat("127.0.0.1:", port_);
}

std::shared_ptr<grpc::Channel> ScriptedProposer::InProcessChannel() {
  absl::MutexLock lock(&mutex_);
  return server_->InProcessChannel(grpc::ChannelArguments());
}

void ScriptedProposer::SetBehaviour(Behaviour behaviour) {
  absl::MutexLock lock(&mutex_);
  behaviour_ = behaviour;
}

void ScriptedProposer::SetTree(TreeScript script) {
  absl::MutexLock lock(&mutex_);
  tree_ = std::move(script);
}

void ScriptedProposer::SetDelay(absl::Duration delay) {
  absl::MutexLock lock(&mutex_);
  delay_ = delay;
}

void ScriptedProposer::Push(const v1::ProposeResponse& response) {
  absl::MutexLock lock(&mutex_);
  // A client counts a stream as open before this server has seen its call.
  if (!mutex_.AwaitWithTimeout(absl::Condition(&has_had_stream_), kMaxWaitForStream)) Breach("no stream ever came");
  for (Connection* connection : connections_) connection->stream->Write(response);
}

std::vector<v1::ProposeRequest> ScriptedProposer::Requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

std::vector<ScriptedProposer::Mirror> ScriptedProposer::Mirrors() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Mirror> mirrors;
  for (const Connection* connection : connections_) {
    for (const auto& [id, mirror] : connection->mirrors) mirrors.push_back(mirror);
  }
  return mirrors;
}

int ScriptedProposer::num_streams() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(connections_.size());
}

int ScriptedProposer::num_describes() const {
  absl::MutexLock lock(&mutex_);
  return num_describes_;
}

int ScriptedProposer::num_bombs() const {
  absl::MutexLock lock(&mutex_);
  return num_bombs_;
}

std::vector<std::string> ScriptedProposer::Breaches() const {
  absl::MutexLock lock(&mutex_);
  return breaches_;
}

v1::TokenTree ScriptedProposer::CountingTree(const Mirror& mirror) {
  v1::TokenTree tree;
  for (uint32_t i = 0; i < mirror.node_budget; ++i) {
    tree.add_token_ids(mirror.token_ids.back() + 1 + i);
    tree.add_parents(static_cast<int32_t>(i) - 1);
    tree.add_chances(.5f);
  }
  return tree;
}

grpc::Status ScriptedProposer::DescribeProposer(grpc::ServerContext*, const v1::DescribeProposerRequest*,
                                                v1::DescribeProposerResponse* response) {
  absl::MutexLock lock(&mutex_);
  ++num_describes_;
  response->set_method(options_.method);
  response->set_vocabulary_fingerprint(options_.vocabulary_fingerprint);
  response->set_max_sessions(options_.max_sessions);
  response->set_max_context_tokens(options_.max_context_tokens);
  for (const std::string& feature : options_.needed_features) response->add_needed_features(feature);
  response->set_version(options_.version);
  response->set_protocol_version(options_.protocol_version);
  for (const std::string& feature : options_.features) response->add_features(feature);
  if (!response->MergeFromString(options_.unknown_fields)) Breach("unknown_fields do not parse");
  return grpc::Status::OK;
}

bool ScriptedProposer::MayRead(grpc::ServerContext* context) const {
  while (!context->IsCancelled()) {
    {
      absl::MutexLock lock(&mutex_);
      if (behaviour_ != Behaviour::kNeverRead) return true;
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  return false;
}

grpc::Status ScriptedProposer::Propose(grpc::ServerContext* context, Stream* stream) {
  Connection connection{.stream = stream};
  bool is_bomb = false;
  {
    absl::MutexLock lock(&mutex_);
    connections_.insert(&connection);
    has_had_stream_ = true;
    is_bomb = behaviour_ == Behaviour::kCompressedBomb;
  }
  if (is_bomb) SendBomb(context, stream);
  v1::ProposeRequest request;
  while (!is_bomb && MayRead(context) && stream->Read(&request)) {
    absl::Duration delay;
    {
      absl::MutexLock lock(&mutex_);
      delay = delay_;
    }
    if (delay > absl::ZeroDuration()) absl::SleepFor(delay);
    absl::MutexLock lock(&mutex_);
    const v1::ProposeResponse response = Hear(connection, request);
    if (response.ByteSizeLong() > 0) stream->Write(response);
    if (behaviour_ == Behaviour::kAnswerAndLeave && response.trees_size() > 0) break;
  }
  absl::MutexLock lock(&mutex_);
  connections_.erase(&connection);
  return grpc::Status::OK;
}

void ScriptedProposer::SendBomb(grpc::ServerContext* context, Stream* stream) {
  context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::ProposeResponse bomb;
  bomb.add_refusals()->set_detail(std::string(kBombBytes, 'x'));
  stream->Write(bomb);
  absl::MutexLock lock(&mutex_);
  ++num_bombs_;
}

v1::ProposeResponse ScriptedProposer::Hear(Connection& connection, const v1::ProposeRequest& request) {
  v1::ProposeResponse response;
  if (options_.keeps_requests) requests_.push_back(request);
  for (const v1::OpenSession& open : request.opens()) {
    if (!connection.used_ids.insert(open.session_id()).second) Breach(absl::StrCat("id reused: ", open.session_id()));
    Mirror& mirror = connection.mirrors[open.session_id()];
    mirror.session_id = open.session_id();
    mirror.open = open;
    mirror.open.clear_token_ids();
    Extend(connection, mirror, open, response);
  }
  for (const v1::AdvanceSession& advance : request.advances()) {
    const auto it = connection.mirrors.find(advance.session_id());
    if (it == connection.mirrors.end()) continue;  // refused since then
    if (advance.base_position() != it->second.token_ids.size()) {
      Breach(absl::StrCat("gap: session ", advance.session_id(), " has ", it->second.token_ids.size(),
                          " tokens, advance says ", advance.base_position()));
    }
    Extend(connection, it->second, advance, response);
  }
  for (const v1::CloseSession& close : request.closes()) {
    if (!connection.used_ids.contains(close.session_id())) Breach("close of a session that never existed");
    connection.mirrors.erase(close.session_id());
  }
  return response;
}

template <typename Message>
void ScriptedProposer::Extend(Connection& connection, Mirror& mirror, const Message& message,
                              v1::ProposeResponse& response) {
  if (TokenBytes(message) > kMaxPieceBytes) Breach(absl::StrCat("a piece of ", TokenBytes(message), " bytes"));
  mirror.token_ids.insert(mirror.token_ids.end(), message.token_ids().begin(), message.token_ids().end());
  mirror.node_budget = message.node_budget();
  const uint64_t session_id = mirror.session_id;
  if (behaviour_ == Behaviour::kRefuse || behaviour_ == Behaviour::kUnknown) {
    if (behaviour_ == Behaviour::kRefuse) response.add_refused_session_ids(session_id);
    if (behaviour_ == Behaviour::kUnknown) response.add_unknown_session_ids(session_id);
    connection.mirrors.erase(session_id);
    return;
  }
  const bool answers = behaviour_ == Behaviour::kAnswer || behaviour_ == Behaviour::kAnswerAndLeave;
  if (!answers || message.awaiting_more() || message.node_budget() == 0) return;
  v1::TokenTree tree = tree_(mirror);
  if (tree.session_id() == 0) tree.set_session_id(session_id);
  if (tree.position() == 0) tree.set_position(mirror.token_ids.size());
  *response.add_trees() = std::move(tree);
}

}  // namespace foretoken::testing
