// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposer_pool_keeper.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/tree_conversion.h"

namespace foretoken::verifier {
namespace {

// A proposer that answers, but does not fit, is asked as seldom as one that has failed so often: only its replacement
// will fit.
constexpr int kSeldom = 30;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const ProposerPoolOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  // The backoff is ours: the channel tries again whenever we do.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.describe_timeout)));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A stream without work is silent by right, so silence does not tell that its host is gone. Where pings come too
  // often for a server, gRPC sends fewer.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_time)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0: no limit
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// Reads and checks outside of any lock.
CheckedAnswer Check(const v1::ProposeResponse& response, const rpc::WireTreeLimits& limits) {
  CheckedAnswer answer;
  answer.trees.reserve(static_cast<size_t>(response.trees_size()));
  for (const v1::TokenTree& tree : response.trees()) {
    answer.trees.push_back({.session_id = tree.session_id(), .tree = rpc::FromProto(tree, limits)});
  }
  answer.refused_session_ids.assign(response.refused_session_ids().begin(), response.refused_session_ids().end());
  answer.unknown_session_ids.assign(response.unknown_session_ids().begin(), response.unknown_session_ids().end());
  return answer;
}

uint64_t SeedOrDrawn(uint64_t seed) { return seed != 0 ? seed : std::random_device()(); }

}  // namespace

ProposerPool::Keeper::Keeper(std::vector<ProposerSpec> the_specs, ProposerPoolOptions the_options)
    : options(std::move(the_options)),
      specs(std::move(the_specs)),
      book(specs.size(), options.backoff, SeedOrDrawn(options.jitter_seed)),
      counters(specs.size()),
      random_(SeedOrDrawn(options.jitter_seed)) {
  bool has_dns = false;
  for (uint32_t i = 0; i < specs.size(); ++i) {
    names.push_back(specs[i].method);
    if (specs[i].is_embedded) AddLink(i, "embedded", specs[i].channel);
    for (const std::string& address : specs[i].static_addresses) AddLink(i, address, MakeChannel(address, options));
    has_dns = has_dns || !specs[i].dns_names.empty();
  }
  keep_thread_ = std::thread([this] { Keep(); });
  if (has_dns) resolve_thread_ = std::thread([this] { Resolve(); });
}

ProposerPool::Keeper::~Keeper() {
  {
    absl::MutexLock lock(&mutex);
    is_stopping_ = true;
    wake_.SignalAll();
  }
  keep_thread_.join();
  if (resolve_thread_.joinable()) resolve_thread_.join();
  absl::MutexLock lock(&mutex);
  for (const auto& [id, link] : links) {
    if (link->describing != nullptr) link->describing->context.TryCancel();
    if (link->stream != nullptr) link->stream->Cancel();
  }
  mutex.Await(absl::Condition(
      +[](int* num_calls) { return *num_calls == 0; }, &num_calls_));
}

ProposerPool::Keeper::Link& ProposerPool::Keeper::AddLink(uint32_t proposer_idx, std::string address,
                                                          std::shared_ptr<grpc::Channel> channel) {
  const uint64_t id = next_id_++;
  std::unique_ptr<Link>& link = links[id] = std::make_unique<Link>();
  link->id = id;
  link->proposer_idx = proposer_idx;
  link->address = std::move(address);
  link->stub = v1::ProposalService::NewStub(channel);
  return *link;
}

void ProposerPool::Keeper::Keep() {
  while (KeepOnce()) {
  }
}

bool ProposerPool::Keeper::KeepOnce() {
  std::vector<std::shared_ptr<void>> ended;  // freed after the lock
  absl::MutexLock lock(&mutex);
  if (is_stopping_) return false;
  const absl::Time now = absl::Now();
  for (auto& [id, link] : links) KeepLink(*link, now);
  book.RetryRefused(now);
  WriteAll(now);
  wake_.WaitWithDeadline(&mutex, NextWake(now));
  ended.swap(ended_);
  return true;
}

void ProposerPool::Keeper::KeepLink(Link& link, absl::Time now) {
  if (link.stream != nullptr) {
    std::optional<absl::Time> silent_since = book.SilentSince(link.replica_id);
    if (link.writing_since.has_value()) silent_since = std::min(silent_since.value_or(now), *link.writing_since);
    if (silent_since.has_value() && now - *silent_since > options.silence_timeout) {
      Drop(link, absl::StrCat("silent for ", absl::FormatDuration(options.silence_timeout)), now);
    }
  } else if (link.describing == nullptr && link.next_attempt <= now) {
    Describe(link);
  }
}

absl::Time ProposerPool::Keeper::NextWake(absl::Time now) const {
  absl::Time next = now + options.silence_timeout / 4;
  for (const auto& [id, link] : links) {
    if (link->stream == nullptr && link->describing == nullptr) next = std::min(next, link->next_attempt);
  }
  return std::min(next, book.NextRetry().value_or(next));
}

void ProposerPool::Keeper::Resolve() {
  while (true) {
    for (uint32_t i = 0; i < specs.size(); ++i) {
      for (const std::string& dns_name : specs[i].dns_names) {
        const absl::StatusOr<std::vector<std::string>> addresses = options.resolve(dns_name);
        if (addresses.ok()) {
          SetAddresses(i, dns_name, *addresses);
        } else {
          spdlog::debug("proposer {}: {}", specs[i].method, std::string(addresses.status().message()));
        }
      }
    }
    absl::MutexLock lock(&mutex);
    const absl::Time next = absl::Now() + options.resolve_period;
    while (!is_stopping_ && absl::Now() < next) wake_.WaitWithDeadline(&mutex, next);
    if (is_stopping_) return;
  }
}

void ProposerPool::Keeper::SetAddresses(uint32_t proposer_idx, const std::string& dns_name,
                                        const std::vector<std::string>& addresses) {
  std::vector<std::unique_ptr<Link>> removed;  // freed after the lock, as `ended_`
  absl::MutexLock lock(&mutex);
  if (is_stopping_) return;
  std::vector<std::string> known;
  std::vector<uint64_t> gone;
  for (const auto& [id, link] : links) {
    if (link->proposer_idx != proposer_idx || link->dns_name != dns_name) continue;
    const bool is_there = std::find(addresses.begin(), addresses.end(), link->address) != addresses.end();
    if (is_there) {
      known.push_back(link->address);
    } else {
      gone.push_back(id);
    }
  }
  for (const std::string& address : addresses) {
    if (std::find(known.begin(), known.end(), address) != known.end()) continue;
    AddLink(proposer_idx, address, MakeChannel(address, options)).dns_name = dns_name;
  }
  const absl::Time now = absl::Now();
  for (const uint64_t id : gone) {
    Link& link = *links.at(id);
    if (link.describing != nullptr) link.describing->context.TryCancel();
    if (link.stream != nullptr) Drop(link, "its address is gone from the name", now);
    removed.push_back(std::move(links.at(id)));
    links.erase(id);
  }
  wake_.SignalAll();
}

void ProposerPool::Keeper::Describe(Link& link) {
  DescribeCall* call = new DescribeCall;
  describe_calls_.try_emplace(call, call);
  call->request.set_vocabulary_fingerprint(options.vocabulary_fingerprint);
  if (link.was_refused) {
    call->request.mutable_token_digests()->Add(options.token_digests.begin(), options.token_digests.end());
  }
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + options.describe_timeout));
  link.describing = call;
  ++num_calls_;
  link.stub->async()->DescribeProposer(
      &call->context, &call->request, &call->response,
      [this, link_id = link.id, call](grpc::Status status) { OnDescribed(link_id, call, status); });
}

void ProposerPool::Keeper::OnDescribed(uint64_t link_id, DescribeCall* call, const grpc::Status& status) {
  absl::MutexLock lock(&mutex);
  --num_calls_;
  ended_.push_back(std::move(describe_calls_.at(call)));
  describe_calls_.erase(call);
  const auto it = links.find(link_id);
  if (it == links.end()) return;
  Link& link = *it->second;
  link.describing = nullptr;  // at the end, too: what is described then is cancelled, and this call may be freed before
  if (is_stopping_) return;
  const absl::Time now = absl::Now();
  const bool is_refusal = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
  // Asked again at once, this time with what it takes to say which token differs.
  if (is_refusal && !std::exchange(link.was_refused, true) && !options.token_digests.empty()) return Describe(link);
  if (is_refusal) link.num_failures = std::max(link.num_failures, kSeldom);
  if (!status.ok()) return Fail(link, absl::StrCat("DescribeProposer: ", status.error_message()), now);
  link.was_refused = false;
  if (absl::Status fits = CheckDescription(link, call->response); !fits.ok()) {
    link.num_failures = std::max(link.num_failures, kSeldom);
    return Fail(link, std::string(fits.message()), now);
  }
  StartStream(link, call->response, now);
}

absl::Status ProposerPool::Keeper::CheckDescription(const Link& link,
                                                    const v1::DescribeProposerResponse& description) const {
  const std::string& method = specs[link.proposer_idx].method;
  if (description.method() != method) {
    return absl::FailedPreconditionError(
        absl::StrCat("not used: method expected \"", method, "\", got \"", description.method(), "\""));
  }
  if (!description.vocabulary_fingerprint().empty() && !options.vocabulary_fingerprint.empty() &&
      description.vocabulary_fingerprint() != options.vocabulary_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("not used: vocabulary_fingerprint expected ",
                                                      options.vocabulary_fingerprint, ", got ",
                                                      description.vocabulary_fingerprint()));
  }
  if (description.needed_features_size() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("not used: it needs the target's feature \"", description.needed_features(0), "\""));
  }
  return absl::OkStatus();
}

void ProposerPool::Keeper::StartStream(Link& link, const v1::DescribeProposerResponse& description, absl::Time now) {
  const uint64_t link_id = link.id;
  const ReplicaId replica_id = next_id_++;
  const uint32_t proposer_idx = link.proposer_idx;
  link.replica_id = replica_id;
  link.writing_since.reset();
  ++num_calls_;
  ++counters[proposer_idx].num_connects;
  link.stream = ReplicaStream::Start(
      *link.stub,
      {.on_answer = [=, this](const auto& response) { OnAnswer(link_id, replica_id, proposer_idx, response); },
       .on_written = [=, this] { OnWritten(link_id, replica_id); },
       .on_closing = [=, this] { OnClosing(link_id, replica_id); },
       .on_end = [=, this](const grpc::Status& status, auto stream) { OnEnd(link_id, status, std::move(stream)); }});
  spdlog::info("proposer {} at {}: connected, {}", names[proposer_idx], link.address, description.version());
  link.last_complaint.clear();
  book.AddReplica(replica_id, proposer_idx,
                  {.max_sessions = description.max_sessions(), .max_context_tokens = description.max_context_tokens()},
                  now);
  Write(link, now);
}

ProposerPool::Keeper::Link* ProposerPool::Keeper::FindStream(uint64_t link_id, ReplicaId replica_id) {
  const auto it = links.find(link_id);
  if (is_stopping_ || it == links.end()) return nullptr;
  Link& link = *it->second;
  return link.stream != nullptr && link.replica_id == replica_id ? &link : nullptr;
}

void ProposerPool::Keeper::OnAnswer(uint64_t link_id, ReplicaId replica_id, uint32_t proposer_idx,
                                    const v1::ProposeResponse& response) {
  CheckedAnswer answer =
      Check(response,
            {.num_tokens = options.num_tokens, .max_nodes = options.max_tree_nodes, .proposers = 1u << proposer_idx});
  const bool places_anew = !answer.refused_session_ids.empty() || !answer.unknown_session_ids.empty();
  const size_t num_bytes = response.ByteSizeLong();
  absl::MutexLock lock(&mutex);
  Link* link = FindStream(link_id, replica_id);
  if (link == nullptr) return;
  const absl::Time now = absl::Now();
  const AnswerVerdict verdict = book.TakeAnswer(replica_id, std::move(answer), now);
  if (verdict.ends_wait) answered.SignalAll();
  ProposerCounters& counts = counters[proposer_idx];
  counts.num_received_bytes += num_bytes;
  counts.num_trees += verdict.num_trees;
  counts.num_stale_trees += verdict.num_stale_trees;
  counts.num_bad_trees += verdict.num_bad_trees;
  if (verdict.num_trees > 0) link->num_failures = 0;
  if (verdict.num_bad_trees > 0) Complain(*link, verdict.first_fault);
  if (verdict.num_bad_in_a_row >= options.max_bad_trees_in_a_row) {
    Drop(*link, absl::StrCat(verdict.num_bad_in_a_row, " bad trees in a row"), now);
  }
  if (places_anew) {
    WriteAll(now);
    wake_.SignalAll();  // there may be a new retry to wait for
  }
}

void ProposerPool::Keeper::OnWritten(uint64_t link_id, ReplicaId replica_id) {
  absl::MutexLock lock(&mutex);
  Link* link = FindStream(link_id, replica_id);
  if (link == nullptr) return;
  link->writing_since.reset();
  Write(*link, absl::Now());
}

void ProposerPool::Keeper::OnClosing(uint64_t link_id, ReplicaId replica_id) {
  absl::MutexLock lock(&mutex);
  // Whoever waits for this replica's answers stops; the reason follows in OnEnd.
  if (Link* link = FindStream(link_id, replica_id); link != nullptr) Drop(*link, "the stream ended", absl::Now());
}

void ProposerPool::Keeper::OnEnd(uint64_t link_id, const grpc::Status& status, std::shared_ptr<ReplicaStream> stream) {
  absl::MutexLock lock(&mutex);
  --num_calls_;
  ended_.push_back(std::move(stream));
  const auto it = links.find(link_id);
  if (is_stopping_ || it == links.end() || status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) return;
  Complain(*it->second, status.error_message());
}

void ProposerPool::Keeper::Write(Link& link, absl::Time now) {
  if (link.stream == nullptr || link.writing_since.has_value()) return;
  std::optional<v1::ProposeRequest> request = book.NextRequest(link.replica_id, now);
  if (!request.has_value()) return;
  counters[link.proposer_idx].num_sent_bytes += request->ByteSizeLong();
  link.writing_since = now;
  link.stream->Write(*std::move(request));
}

void ProposerPool::Keeper::WriteAll(absl::Time now) {
  for (auto& [id, link] : links) Write(*link, now);
}

void ProposerPool::Keeper::Drop(Link& link, const std::string& why, absl::Time now) {
  link.stream->Cancel();
  link.stream.reset();
  ++counters[link.proposer_idx].num_breaks;
  book.RemoveReplica(link.replica_id, now);
  answered.SignalAll();
  Fail(link, why, now);
  WriteAll(now);  // its sessions, at other replicas
}

void ProposerPool::Keeper::Fail(Link& link, const std::string& why, absl::Time now) {
  ++link.num_failures;
  const double unit_random = std::uniform_real_distribution<double>(0, 1)(random_);
  link.next_attempt = now + BackoffDelay(options.backoff, link.num_failures, unit_random);
  Complain(link, why);
  wake_.SignalAll();
}

void ProposerPool::Keeper::Complain(Link& link, const std::string& why) {
  if (std::exchange(link.last_complaint, why) == why) return;
  spdlog::warn("proposer {} at {}: {}", names[link.proposer_idx], link.address, why);
}

}  // namespace foretoken::verifier
