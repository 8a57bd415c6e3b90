// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/status.h"
#include "common/rpc/tree_conversion.h"
#include "proposer_service/description.h"
#include "proposer_service/event_checks.h"

namespace foretoken::proposer {
namespace {

// The tag and the length of a tree in a message.
constexpr size_t kTreeFieldOverhead = 8;
constexpr size_t kMaxTreeFieldBytes = rpc::kMaxTokenTreeBytes + kTreeFieldOverhead;
// The most refusals, and the most unknown sessions, of one message. A refusal takes its detail and some 40 bytes more;
// kMaxNoticeBytes bounds all notices of a message.
constexpr size_t kMaxMessageNotices = 2048;
// A verifier takes at most 16,384 sessions from one message.
constexpr size_t kMaxMessageTrees = 8192;
constexpr size_t kMaxNoticeBytes = kMaxMessageNotices * (rpc::kMaxRefusalDetailBytes + 64);
// While this many refusals wait to be sent, further refusals get no detail.
constexpr size_t kMaxDetails = 4096;
// With this many notices a stream ends. It reads only while few wait, but one message can bring a quarter of a million.
// A verifier knows max_sessions, by default 2,048, and has no reason for more.
constexpr size_t kNoticesThatEndAStream = 16'384;
static_assert(kMaxNoticeBytes + kMaxTreeFieldBytes <= size_t{rpc::kMaxProposeResponseBytes},
              "every message has room for a tree");

std::map<v1::RefusalReason, prometheus::Counter*> RefusalCounters(telemetry::Metrics& metrics,
                                                                  const prometheus::Labels& labels) {
  std::map<v1::RefusalReason, prometheus::Counter*> counters;
  for (const v1::RefusalReason reason : {v1::REFUSAL_REASON_FULL, v1::REFUSAL_REASON_STREAM_FULL,
                                         v1::REFUSAL_REASON_CONTEXT_TOO_LONG, v1::REFUSAL_REASON_INVALID}) {
    prometheus::Labels with_reason = labels;
    with_reason["reason"] = rpc::RefusalName(reason);
    counters[reason] =
        &metrics.AddCounter("foretoken_proposer_refused_sessions_total", "Sessions refused.", with_reason);
  }
  return counters;
}

// Why a proposer ends a stream that its verifier has not ended.
std::map<absl::StatusCode, prometheus::Counter*> StreamErrorCounters(telemetry::Metrics& metrics,
                                                                     const prometheus::Labels& labels) {
  std::map<absl::StatusCode, prometheus::Counter*> counters;
  for (const absl::StatusCode code : {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kInvalidArgument,
                                      absl::StatusCode::kResourceExhausted}) {
    prometheus::Labels with_code = labels;
    with_code["code"] = absl::StatusCodeToString(code);
    counters[code] = &metrics.AddCounter("foretoken_proposer_stream_errors_total",
                                         "Streams that the proposer ended with an error.", with_code);
  }
  return counters;
}

// An empty list that has room for more entries than this gives the room back, because a verifier can fill a list with
// one message.
constexpr size_t kMaxKeptRoom = 4096;

template <typename T>
void EraseFirst(size_t num, std::vector<T>& values) {
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(num));
  if (values.empty() && values.capacity() > kMaxKeptRoom) std::vector<T>().swap(values);
}

}  // namespace

// A verifier with an embedded proposer shows both sets of metrics on one page, so no name is also a verifier's name.
ProposerMetrics::ProposerMetrics(telemetry::Metrics& metrics, const prometheus::Labels& labels)
    : streams(metrics.AddGauge("foretoken_proposer_streams", "Open streams of verifiers.", labels)),
      stream_errors(StreamErrorCounters(metrics, labels)),
      sessions(metrics.AddGauge("foretoken_proposer_sessions", "Open sessions.", labels)),
      tokens(metrics.AddGauge("foretoken_proposer_session_tokens", "Tokens of the open sessions' contexts and masks.",
                              labels)),
      trees(metrics.AddCounter("foretoken_proposer_sent_trees_total", "Trees sent, empty ones too.", labels)),
      nodes(metrics.AddCounter("foretoken_proposer_sent_nodes_total", "Nodes of the trees sent.", labels)),
      refused(RefusalCounters(metrics, labels)),
      unknown(metrics.AddCounter("foretoken_proposer_unknown_sessions_total", "Sessions reported unknown.", labels)) {}

SessionTable::SessionTable(const Environment& environment)
    : environment_(environment),
      room_(environment.room),
      trace_(environment.trace == nullptr
                 ? nullptr
                 : std::make_unique<StreamTrace>(*environment.trace, environment.proposer.Describe().method,
                                                 environment.call)) {}

void SessionTable::SetEnd(const absl::Status& status) {
  if (trace_ != nullptr) trace_->SetStatus(status);
  const auto& errors = environment_.metrics.stream_errors;
  if (const auto found = errors.find(status.code()); found != errors.end()) found->second->Increment();
}

absl::Status SessionTable::Apply(const v1::ProposeRequest& request) {
  FT_RETURN_IF_ERROR(SetVocabulary(request.vocabulary_fingerprint()));
  FT_RETURN_IF_ERROR(CheckCredit(request));
  for (const v1::OpenSession& open : request.opens()) Open(open);
  for (const v1::AdvanceSession& advance : request.advances()) Advance(advance);
  for (const v1::FeatureChunk& chunk : request.features()) AppendFeatures(chunk);
  PassRequests();
  for (const v1::CloseSession& close : request.closes()) {
    // The session may have been dropped before.
    if (const auto entry = entries_.find(close.session_id()); entry != entries_.end()) Drop(entry);
  }
  if (num_notices() > kNoticesThatEndAStream) {
    return absl::ResourceExhaustedError(
        absl::StrCat("refusals and unknown sessions that the verifier has not read: expected at most ",
                     kNoticesThatEndAStream, ", got ", num_notices()));
  }
  return absl::OkStatus();
}

absl::Status SessionTable::SetVocabulary(const std::string& fingerprint) {
  if (fingerprint.empty() || fingerprint == vocabulary_) return absl::OkStatus();
  if (!vocabulary_.empty()) {
    return rpc::InvalidField("vocabulary_fingerprint",
                             absl::StrCat("expected the stream's own, ", vocabulary_, ", got another one"));
  }
  FT_RETURN_IF_ERROR(CheckVocabulary(environment_.proposer.Describe(), fingerprint));
  vocabulary_ = fingerprint;
  return absl::OkStatus();
}

void SessionTable::Open(const v1::OpenSession& open) {
  if (const auto entry = entries_.find(open.session_id()); entry != entries_.end()) {
    Drop(entry);
    return ReportUnknown(open.session_id());
  }
  std::optional<Refusal> refusal = CheckIntroduction(open);
  if (!refusal.has_value()) refusal = room_.TakeSession();
  if (refusal.has_value()) return Refuse(open.session_id(), *std::move(refusal));
  const auto entry = entries_.emplace(open.session_id(), Entry{}).first;
  SessionIntroduction introduction = FromProto(open);
  introduction.vocabulary = vocabulary_;
  introduction.announce = [announce = environment_.announce, session_id = open.session_id()] {
    if (announce) announce(session_id);
  };
  entry->second.session = environment_.proposer.Open(introduction);
  if (trace_ != nullptr) {
    entry->second.trace =
        SessionTrace::Begin(*environment_.trace, environment_.proposer.Describe().method, open, *trace_);
  }
  if (!Append(entry, open.token_ids())) return;
  if (open.awaiting_more()) return;
  Request(open.session_id(), entry->second, {.allowed = TakeMask(entry->second, open.allowed_tokens())},
          open.node_budget());
}

void SessionTable::Advance(const v1::AdvanceSession& advance) {
  const auto entry = entries_.find(advance.session_id());
  if (entry == entries_.end()) return ReportUnknown(advance.session_id());
  if (advance.base_position() != entry->second.session->position()) {
    Drop(entry);
    return ReportUnknown(advance.session_id());
  }
  if (!entry->second.has_requested) PassRequest(advance.session_id(), entry->second);
  if (!Append(entry, advance.token_ids())) return;
  if (advance.awaiting_more()) return;
  Request(advance.session_id(), entry->second,
          {.until_next_step = absl::Microseconds(advance.next_step_us()),
           .step = absl::Microseconds(advance.step_us()),
           .allowed = TakeMask(entry->second, advance.allowed_tokens())},
          advance.node_budget());
}

void SessionTable::Request(uint64_t session_id, Entry& entry, TreeRequest tree_request, uint32_t node_budget) {
  tree_request.node_budget =
      static_cast<int32_t>(std::min(node_budget, static_cast<uint32_t>(room_.limits().max_tree_nodes)));
  if (!entry.requested.has_value()) requested_.push_back(session_id);
  entry.requested = std::move(tree_request);
}

void SessionTable::PassRequest(uint64_t session_id, Entry& entry) {
  if (!entry.requested.has_value()) return;
  const TreeRequest tree_request = *std::exchange(entry.requested, std::nullopt);
  entry.has_requested = true;
  entry.node_budget = tree_request.node_budget;
  const bool was_ready = entry.trace != nullptr && entry.session->has_grown_tree();
  entry.session->Want(tree_request);
  if (entry.trace != nullptr) entry.trace->Ask(entry.node_budget, was_ready);
  if (entry.node_budget > 0) List(session_id, entry);
}

void SessionTable::PassRequests() {
  for (const uint64_t session_id : std::exchange(requested_, {})) {
    // A later event of the message may have dropped the session.
    if (const auto entry = entries_.find(session_id); entry != entries_.end()) PassRequest(session_id, entry->second);
  }
}

absl::Status SessionTable::CheckCredit(const v1::ProposeRequest& request) const {
  if (environment_.proposer.Describe().features == nullptr) return absl::OkStatus();  // then features are ignored
  uint64_t num_bytes = 0;
  for (const v1::FeatureChunk& chunk : request.features()) num_bytes += chunk.values().size();
  const uint64_t credit = num_granted_bytes_ - num_feature_bytes_;
  if (num_bytes <= credit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("features: expected at most ", credit, " bytes by the stream's credit, got ", num_bytes));
}

void SessionTable::AppendFeatures(const v1::FeatureChunk& chunk) {
  num_feature_bytes_ += chunk.values().size();
  const auto entry = entries_.find(chunk.session_id());
  const auto& features = environment_.proposer.Describe().features;
  if (entry == entries_.end() || features == nullptr) return;  // a missing session's notice is on the way
  Session& session = *entry->second.session;
  if (std::optional<Refusal> refusal = CheckFeatures(chunk, *features, session.position())) {
    Drop(entry);
    return Refuse(chunk.session_id(), *std::move(refusal));
  }
  if (entry->second.features_end.value_or(chunk.first_position()) != chunk.first_position()) {
    Drop(entry);
    return ReportUnknown(chunk.session_id());
  }
  std::vector<uint16_t> values(chunk.values().size() / sizeof(uint16_t));
  std::memcpy(values.data(), chunk.values().data(), chunk.values().size());
  entry->second.features_end = chunk.first_position() + values.size() / static_cast<size_t>(features->width());
  session.AppendFeatures(chunk.first_position(), values);
}

uint64_t SessionTable::CreditToGrant() const {
  if (environment_.proposer.Describe().features == nullptr) return 0;
  const auto limit = static_cast<uint64_t>(room_.limits().max_stream_feature_bytes);
  uint64_t num_used = num_granted_bytes_ - num_feature_bytes_;  // by what may still come, and by what waits
  for (const auto& [session_id, entry] : entries_) {
    num_used += static_cast<uint64_t>(entry.session->num_unused_feature_values()) * sizeof(uint16_t);
  }
  const uint64_t num_free = limit - std::min(num_used, limit);
  return num_free >= limit / 4 ? num_free : 0;
}

bool SessionTable::Append(Entries::iterator entry, const google::protobuf::RepeatedField<uint32_t>& token_ids) {
  const auto max_tokens = static_cast<uint64_t>(room_.limits().max_session_tokens());
  const uint64_t new_position = entry->second.session->position() + static_cast<uint64_t>(token_ids.size());
  std::optional<Refusal> refusal = CheckTokens(token_ids, environment_.proposer.Describe());
  if (!refusal.has_value() && new_position > max_tokens) {
    refusal = {.reason = v1::REFUSAL_REASON_CONTEXT_TOO_LONG,
               .detail = absl::StrCat("tokens of a session: expected at most ", max_tokens, ", got ", new_position)};
  }
  if (!refusal.has_value()) refusal = room_.TakeTokens(token_ids.size());
  if (refusal.has_value()) {
    const uint64_t session_id = entry->first;
    Drop(entry);
    Refuse(session_id, *std::move(refusal));
    return false;
  }
  static_assert(sizeof(int32_t) == sizeof(uint32_t));
  entry->second.session->Append(
      {reinterpret_cast<const int32_t*>(token_ids.data()),  // the signed type of the same size may alias
       static_cast<size_t>(token_ids.size())});
  if (entry->second.trace != nullptr) entry->second.trace->SetPosition(new_position);
  return true;
}

speculation::AllowedTokens SessionTable::TakeMask(Entry& entry, const std::string& bytes) {
  if (entry.num_mask_tokens > 0) room_.GiveBackTokens(std::exchange(entry.num_mask_tokens, 0));
  const auto num_tokens =
      static_cast<int64_t>(bytes.size() + StreamRoom::kMaskBytesPerToken - 1) / StreamRoom::kMaskBytesPerToken;
  if (num_tokens == 0 || room_.TakeTokens(num_tokens).has_value()) return {};
  entry.num_mask_tokens = num_tokens;
  return speculation::AllowedTokens(bytes);
}

void SessionTable::List(uint64_t session_id, Entry& entry) {
  if (!std::exchange(entry.is_listed, true)) owed_.push_back(session_id);
}

void SessionTable::Announce(uint64_t session_id) {
  const auto entry = entries_.find(session_id);
  if (entry == entries_.end()) return;
  if (entry->second.node_budget > 0) List(session_id, entry->second);
}

void SessionTable::Drop(Entries::iterator entry) {
  if (entry->second.is_listed) std::erase(owed_, entry->first);
  room_.GiveBackSession(static_cast<int64_t>(entry->second.session->position()) + entry->second.num_mask_tokens);
  entries_.erase(entry);
}

void SessionTable::Refuse(uint64_t session_id, Refusal refusal) {
  environment_.metrics.refused.at(refusal.reason)->Increment();
  refusal.detail.resize(std::min(refusal.detail.size(), rpc::kMaxRefusalDetailBytes));
  if (refused_.size() >= kMaxDetails) refusal.detail = {};
  refused_.push_back({.session_id = session_id, .refusal = std::move(refusal)});
}

void SessionTable::ReportUnknown(uint64_t session_id) {
  unknown_.push_back(session_id);
  environment_.metrics.unknown.Increment();
}

void SessionTable::AddTrees(v1::ProposeResponse& response) {
  size_t num_free = rpc::kMaxProposeResponseBytes - kMaxNoticeBytes;
  size_t num_done = 0;  // of owed_
  while (num_done < owed_.size()) {
    const size_t num_now =
        std::min({owed_.size() - num_done, num_free / kMaxTreeFieldBytes, kMaxMessageTrees - num_done});
    if (num_now == 0) break;
    num_free -= AddTrees(std::span(owed_).subspan(num_done, num_now), response);
    num_done += num_now;
  }
  EraseFirst(num_done, owed_);
}

size_t SessionTable::AddTrees(std::span<const uint64_t> session_ids, v1::ProposeResponse& response) {
  std::vector<ProposalRequest> requests;
  std::vector<uint64_t> ready, refused, forgotten;
  for (const uint64_t session_id : session_ids) {
    Entry& entry = entries_.find(session_id)->second;
    entry.is_listed = false;
    if (entry.node_budget == 0) continue;  // the verifier no longer wants a tree
    const Readiness readiness = entry.session->readiness();
    if (readiness == Readiness::kRefused) refused.push_back(session_id);
    if (readiness == Readiness::kForgotten) forgotten.push_back(session_id);
    if (readiness != Readiness::kReady) continue;
    requests.push_back({.session = entry.session.get(), .node_budget = entry.node_budget});
    ready.push_back(session_id);
  }
  size_t num_nodes = 0, num_bytes = 0;
  const std::vector<speculation::TokenTree> trees = environment_.proposer.Propose(requests);
  for (size_t i = 0; i < trees.size(); ++i) {
    v1::TokenTree& tree = *response.add_trees() = rpc::ToProto(trees[i], ready[i]);
    num_bytes += tree.ByteSizeLong() + kTreeFieldOverhead;
    num_nodes += trees[i].nodes.size();
    SessionTrace* const trace = entries_.find(ready[i])->second.trace.get();
    if (trace != nullptr) trace->Answer(trees[i].num_nodes());
  }
  environment_.metrics.trees.Increment(static_cast<double>(trees.size()));
  environment_.metrics.nodes.Increment(static_cast<double>(num_nodes));
  for (const uint64_t session_id : refused) {
    Drop(entries_.find(session_id));
    Refuse(session_id, {.reason = v1::REFUSAL_REASON_FULL, .detail = "the proposer has no room for the context"});
  }
  for (const uint64_t session_id : forgotten) {
    Drop(entries_.find(session_id));
    ReportUnknown(session_id);
  }
  return num_bytes;
}

void SessionTable::AddNotices(v1::ProposeResponse& response) {
  const size_t num_refused = std::min(refused_.size(), kMaxMessageNotices);
  for (size_t i = 0; i < num_refused; ++i) {
    v1::RefusedSession& refusal = *response.add_refusals();
    refusal.set_session_id(refused_[i].session_id);
    refusal.set_reason(refused_[i].refusal.reason);
    refusal.set_detail(std::move(refused_[i].refusal.detail));
    response.add_refused_session_ids(refused_[i].session_id);
  }
  EraseFirst(num_refused, refused_);
  const size_t num_unknown = std::min(unknown_.size(), kMaxMessageNotices);
  response.mutable_unknown_session_ids()->Add(unknown_.begin(),
                                              unknown_.begin() + static_cast<std::ptrdiff_t>(num_unknown));
  EraseFirst(num_unknown, unknown_);
}

bool SessionTable::TakeResponse(v1::ProposeResponse& response) {
  response.Clear();
  AddTrees(response);
  AddNotices(response);
  if (const uint64_t num_bytes = CreditToGrant(); num_bytes > 0) {
    response.set_feature_credit_bytes(num_bytes);
    num_granted_bytes_ += num_bytes;
  }
  return response.feature_credit_bytes() > 0 || response.trees_size() > 0 || response.refusals_size() > 0 ||
         response.unknown_session_ids_size() > 0;
}

}  // namespace foretoken::proposer
