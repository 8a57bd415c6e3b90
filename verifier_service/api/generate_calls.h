// SPDX-License-Identifier: Apache-2.0
// All Generate calls of a server, by whichever service they came. They share one queue, one set of request ids, and the
// limits of unread output. Parsing and encoding take time and run on two threads of their own, after a call has a place
// in the engine's queue. One more thread compiles response formats. Tenants take turns at both. A call that is
// cancelled before its turn frees its place at once.
//
//   GenerateCalls calls({.model = ..., .engine = ..., .publisher = &publisher, ...});
//   return calls.Start({.context = context, .request = request, .method = "foretoken.v1.GenerationService/Generate",
//                       .rpc = {"Generate"}, .format = std::make_unique<OwnFormat>(calls.bounds())});
//
// Errors: as generation.proto says. Threads: any.
// Lifetime: the gRPC server shuts down before the calls are destroyed. The publisher and the engine outlive them. The
// destructor waits for threads of the publisher and of gRPC that still use a call, although it is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/awaited_shares.h"
#include "common/base/periodic_task.h"
#include "verifier_service/api/call_format.h"
#include "verifier_service/api/client_tokens.h"
#include "verifier_service/api/generate_call.h"
#include "verifier_service/api/tenant_queue.h"
#include "verifier_service/grammar/compile_places.h"

namespace foretoken::verifier {

struct GenerateCallsParts {
  ServedModel model;
  EnginePort engine;
  Publisher* publisher = nullptr;
  CallMetrics* metrics = nullptr;
  DrawBits draw_bits;              // for unset seeds and request ids
  ClientTokens* tokens = nullptr;  // null: clients need no token
  tracing::Tracer tracer = {};
  bool traces_steps = false;            // a recorded call's trace has every step
  GrammarCompiler* grammars = nullptr;  // null: requests with a response format are refused
  int32_t max_compilations = 16;        // of response formats, waiting and running; one more gets RESOURCE_EXHAUSTED
  UnreadLimits unread;
  std::optional<absl::Duration> max_connection_age = std::nullopt;  // of the server
};

// A call as a service receives it.
struct IncomingCall {
  grpc::CallbackServerContext* context = nullptr;
  const grpc::ByteBuffer* request = nullptr;
  std::string method;  // PACKAGE.SERVICE/METHOD, for traces
  RpcName rpc;         // for metrics
  std::unique_ptr<CallFormat> format;
};

class GenerateCalls {
 public:
  explicit GenerateCalls(GenerateCallsParts parts);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(IncomingCall incoming);
  // Ends the requests with this name, running or waiting, with FINISH_REASON_ABORT. False if there is none.
  bool Abort(const RequestName& name);
  // UNAUTHENTICATED if clients need a token and the call has none.
  absl::Status CheckClient(const grpc::CallbackServerContext& context) const;

  // For calls other than Generate. A message that gRPC sends counts as unread output until the next one or EndAnswer,
  // and its call ends as a Generate call would that does not read. EndAnswer comes in OnDone.
  Ticket NewTicket() { return next_ticket_.fetch_add(1); }
  void BeginAnswer(Ticket ticket, grpc::CallbackServerContext& context, const grpc::ByteBuffer& message);
  void EndAnswer(Ticket ticket) { answers_.End(ticket); }

  // From here on a status follows the last message after a moment, so that clients have read the message before their
  // connections close.
  void BeginDraining() { context_.is_draining = true; }
  // Waits for the calls. Returns true if all ended before the timeout.
  bool WaitUntilIdle(absl::Duration timeout);
  // Ends every call with FINISH_REASON_SHUTDOWN, or with UNAVAILABLE if it has generated nothing yet.
  void ShutDownAll();
  // Ends every call with this error, and tells the engine.
  void EndAll(const absl::Status& status);
  // Ends every request that the engine has with this error, without calling the engine.
  void FailAll(const absl::Status& status);

  const ServedModel& model() const { return context_.model; }
  const RequestBounds& bounds() const { return context_.bounds; }
  CallMetrics& metrics() const { return *context_.metrics; }
  const UnreadOutputs& unread() const { return context_.unread; }
  size_t num_running() const;

 private:
  std::shared_ptr<GenerateCall> FindCall(Ticket ticket);
  std::vector<std::shared_ptr<GenerateCall>> Calls();

  ClientTokens* const tokens_;
  CallContext context_;
  UnreadAnswers answers_{&context_.unread};
  std::atomic<Ticket> next_ticket_{1};
  // A std::mutex, because the timed waits of absl::Mutex follow the system's clock. It guards calls_.
  mutable std::mutex mutex_;
  std::condition_variable call_ended_;
  absl::flat_hash_map<Ticket, std::weak_ptr<GenerateCall>> calls_;  // until they are done
  base::AwaitedShares calls_in_use_;
  // Last, because their threads use the members above. A parsed request may go on to be compiled, so the threads of
  // parse_queue_ end before the places and the queue of compilations do.
  CompilePlaces compile_places_;
  TenantQueue compile_queue_;
  TenantQueue parse_queue_;
  base::PeriodicTask stall_watch_;
};

}  // namespace foretoken::verifier
