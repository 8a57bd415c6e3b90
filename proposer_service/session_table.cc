// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/rpc/tree_conversion.h"

namespace foretoken::proposer {
namespace {

// A rule that is unset, or newer than this build, is taken for the keyed draw: what is proposed for that are guesses,
// which are exact under any rule.
kernels::VerificationRule Rule(v1::VerificationRule rule) {
  return rule == v1::VERIFICATION_RULE_REJECTION_SAMPLING ? kernels::VerificationRule::kRejectionSampling
                                                          : kernels::VerificationRule::kKeyedDraw;
}

SessionIntroduction Introduction(const v1::OpenSession& open) {
  const v1::SamplingFilters& filters = open.filters();
  return {.rule = Rule(open.rule()),
          .seed = open.seed(),
          .sample_index = open.sample_index(),
          .temperature = filters.has_temperature() ? filters.temperature() : 1,
          .top_k = filters.top_k(),
          .top_p = filters.has_top_p() ? filters.top_p() : 1,
          .min_p = filters.min_p(),
          .tenant = open.tenant()};
}

}  // namespace

// No name is also one of the verifier's: with an embedded proposer both are on one page.
ProposerMetrics::ProposerMetrics(telemetry::Metrics& metrics, const prometheus::Labels& labels)
    : streams(metrics.AddGauge("foretoken_proposer_streams", "Open streams of verifiers.", labels)),
      sessions(metrics.AddGauge("foretoken_proposer_sessions", "Open sessions.", labels)),
      trees(metrics.AddCounter("foretoken_proposer_sent_trees_total", "Trees sent, empty ones too.", labels)),
      nodes(metrics.AddCounter("foretoken_proposer_sent_nodes_total", "Nodes of the trees sent.", labels)),
      refused(metrics.AddCounter("foretoken_proposer_refused_sessions_total", "Sessions refused.", labels)),
      unknown(metrics.AddCounter("foretoken_proposer_unknown_sessions_total", "Sessions reported unknown.", labels)) {}

bool SessionSlots::TryTake() {
  if (num_free_.fetch_sub(1) <= 0) {
    num_free_.fetch_add(1);
    return false;
  }
  open_sessions_.Increment();
  return true;
}

void SessionSlots::Return(int32_t num_sessions) {
  num_free_.fetch_add(num_sessions);
  open_sessions_.Decrement(num_sessions);
}

SessionTable::~SessionTable() { environment_.slots.Return(static_cast<int32_t>(entries_.size())); }

void SessionTable::Apply(const v1::ProposeRequest& request) {
  for (const v1::OpenSession& open : request.opens()) Open(open);
  for (const v1::AdvanceSession& advance : request.advances()) Advance(advance);
  for (const v1::CloseSession& close : request.closes()) {
    // A session that is gone already needs no closing.
    if (const auto entry = entries_.find(close.session_id()); entry != entries_.end()) Drop(entry);
  }
}

void SessionTable::Open(const v1::OpenSession& open) {
  if (const auto entry = entries_.find(open.session_id()); entry != entries_.end()) {
    Drop(entry);
    return ReportUnknown(open.session_id());
  }
  if (!environment_.slots.TryTake()) return Refuse(open.session_id());
  const auto entry = entries_.emplace(open.session_id(), Entry{}).first;
  SessionIntroduction introduction = Introduction(open);
  introduction.announce = [announce = environment_.announce, session_id = open.session_id()] {
    if (announce) announce(session_id);
  };
  entry->second.session = environment_.proposer.Open(introduction);
  if (!Append(entry, open.token_ids())) return;
  if (!open.awaiting_more()) Settle(open.session_id(), entry->second, {}, open.node_budget());
}

void SessionTable::Advance(const v1::AdvanceSession& advance) {
  const auto entry = entries_.find(advance.session_id());
  if (entry == entries_.end()) return ReportUnknown(advance.session_id());
  if (advance.base_position() != entry->second.session->position()) {
    Drop(entry);
    return ReportUnknown(advance.session_id());
  }
  if (!Append(entry, advance.token_ids())) return;
  if (!advance.awaiting_more())
    Settle(
        advance.session_id(), entry->second,
        {.until_next_step = absl::Microseconds(advance.next_step_us()), .step = absl::Microseconds(advance.step_us())},
        advance.node_budget());
}

bool SessionTable::Append(Entries::iterator entry, const google::protobuf::RepeatedField<uint32_t>& token_ids) {
  constexpr uint32_t kLastTokenId = std::numeric_limits<int32_t>::max();
  const uint64_t new_position = entry->second.session->position() + static_cast<uint64_t>(token_ids.size());
  if (new_position > environment_.limits.max_context_tokens ||
      std::any_of(token_ids.begin(), token_ids.end(), [](uint32_t token_id) { return token_id > kLastTokenId; })) {
    const uint64_t session_id = entry->first;
    Drop(entry);
    Refuse(session_id);
    return false;
  }
  static_assert(sizeof(int32_t) == sizeof(uint32_t));
  entry->second.session->Append({reinterpret_cast<const int32_t*>(token_ids.data()),  // the signed twin may alias
                                 static_cast<size_t>(token_ids.size())});
  return true;
}

void SessionTable::Settle(uint64_t session_id, Entry& entry, Wish wish, uint32_t node_budget) {
  entry.node_budget =
      static_cast<int32_t>(std::min(node_budget, static_cast<uint32_t>(environment_.limits.max_tree_nodes)));
  wish.node_budget = entry.node_budget;
  entry.session->Want(wish);
  if (entry.node_budget > 0) List(session_id, entry);
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
  entries_.erase(entry);
  environment_.slots.Return(1);
}

void SessionTable::Refuse(uint64_t session_id) {
  refused_.push_back(session_id);
  environment_.metrics.refused.Increment();
}

void SessionTable::ReportUnknown(uint64_t session_id) {
  unknown_.push_back(session_id);
  environment_.metrics.unknown.Increment();
}

void SessionTable::AddTrees(v1::ProposeResponse& response) {
  std::vector<ProposalRequest> requests;
  std::vector<uint64_t> session_ids, refused;
  requests.reserve(owed_.size());
  session_ids.reserve(owed_.size());
  for (const uint64_t session_id : owed_) {
    Entry& entry = entries_.find(session_id)->second;
    entry.is_listed = false;
    if (entry.node_budget == 0) continue;  // no longer wanted
    const Readiness readiness = entry.session->readiness();
    if (readiness == Readiness::kRefused) refused.push_back(session_id);
    if (readiness != Readiness::kReady) continue;
    requests.push_back({.session = entry.session.get(), .node_budget = entry.node_budget});
    session_ids.push_back(session_id);
  }
  owed_.clear();
  size_t num_nodes = 0;
  const std::vector<speculation::TokenTree> trees = environment_.proposer.Propose(requests);
  for (size_t i = 0; i < trees.size(); ++i) {
    *response.add_trees() = rpc::ToProto(trees[i], session_ids[i]);
    num_nodes += trees[i].token_ids.size();
  }
  environment_.metrics.trees.Increment(static_cast<double>(trees.size()));
  environment_.metrics.nodes.Increment(static_cast<double>(num_nodes));
  for (const uint64_t session_id : refused) {
    Drop(entries_.find(session_id));
    Refuse(session_id);
  }
}

bool SessionTable::TakeNews(v1::ProposeResponse& response) {
  response.Clear();
  AddTrees(response);
  response.mutable_refused_session_ids()->Add(refused_.begin(), refused_.end());
  response.mutable_unknown_session_ids()->Add(unknown_.begin(), unknown_.end());
  refused_.clear();
  unknown_.clear();
  return response.trees_size() > 0 || response.refused_session_ids_size() > 0 ||
         response.unknown_session_ids_size() > 0;
}

}  // namespace foretoken::proposer
