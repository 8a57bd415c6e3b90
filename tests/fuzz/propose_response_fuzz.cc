// SPDX-License-Identifier: Apache-2.0
// Reads the input as the messages of proposers' streams, and gives them to the verifier's session book while sequences
// begin, grow and end. The book gives the engine only valid trees, and its own messages stay consistent: an honest
// proposer that reads them refuses nothing and misses nothing.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/rpc/parse_message.h"
#include "kernels/check.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/session_table.h"
#include "tests/fuzz/messages.h"
#include "verifier_service/proposers/check_proposer.h"
#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {
namespace {

constexpr int32_t kNumTokens = 1000, kMaxNodes = 64;
constexpr size_t kNumReplicas = 3, kMaxMessages = 24;
constexpr SequenceId kNumSequences = 3;  // 2 has rejection sampling

// An honest proposer behind a stream.
class Mirror {
 public:
  Mirror() : table_({.proposer = proposer_, .room = room_, .metrics = Metrics()}) {}

  void Take(const v1::ProposeRequest& request) {
    FT_CHECK(table_.Apply(request).ok());
    for (v1::ProposeResponse response; table_.HasResponse() && table_.TakeResponse(response);) {
      FT_CHECK(response.refusals_size() == 0 && response.unknown_session_ids_size() == 0);
    }
  }

 private:
  static proposer::ProposerMetrics& Metrics() {
    static telemetry::Metrics registry;
    static proposer::ProposerMetrics metrics(registry, {});
    return metrics;
  }

  proposer::NgramProposer proposer_{{}};
  proposer::SessionRoom room_{{.max_sessions = 1 << 20, .max_stream_share = 1}, Metrics().room()};
  proposer::SessionTable table_;
};

struct Replica {
  ReplicaId id = 0;
  std::unique_ptr<Mirror> mirror;
};

class Run {
 public:
  Run() {
    for (SequenceId id = 1; id <= kNumSequences; ++id) Open(id);
    for (size_t i = 0; i < kNumReplicas; ++i) Connect(i);
    Flush();
  }

  // The first byte of a message says who sends it, and what the engine does before.
  void Take(absl::string_view message) {
    const auto first = static_cast<uint8_t>(message.empty() ? 0 : message.front());
    const size_t replica_idx = first % kNumReplicas;
    Act(first >> 2);
    v1::ProposeResponse response;
    static const rpc::MessageBounds bounds = AnswerBounds();
    if (!rpc::ParseMessage(message.substr(message.empty() ? 0 : 1), bounds, response).ok()) return Connect(replica_idx);
    const rpc::WireTreeLimits limits = {
        .num_tokens = kNumTokens, .max_nodes = kMaxNodes, .proposers = 1u << ProposerOf(replica_idx)};
    const AnswerVerdict verdict = book_.TakeAnswer(replicas_[replica_idx].id, CheckAnswer(response, limits), now_);
    FT_CHECK(verdict.num_trees + verdict.num_stale_trees + verdict.num_bad_trees <=
             static_cast<uint64_t>(response.trees_size()));
    book_.RetryRefused(now_);
    for (const Proposal& proposal : book_.TakeProposals()) CheckProposal(proposal);
    Flush();
  }

 private:
  static uint32_t ProposerOf(size_t replica_idx) { return replica_idx == 2 ? 1 : 0; }
  static bool IsTested(SequenceId id) { return id == 2; }

  void Open(SequenceId id) {
    const std::vector<int32_t> prompt = {5, 6, 7, 5, 6};
    lengths_[id] = prompt.size();
    book_.Open(
        {.sequence_id = id,
         .token_ids = prompt,
         .rule = IsTested(id) ? kernels::VerificationRule::kRejectionSampling : kernels::VerificationRule::kKeyedDraw,
         .tenant = "t"},
        now_);
    book_.Advance(id, {}, {.node_budget = 8, .proposers = ~0u});
  }

  // A stream that ends takes its replica's sessions with it; the replica comes back with a new id.
  void Connect(size_t replica_idx) {
    Replica& replica = replicas_[replica_idx];
    if (replica.id != 0) book_.RemoveReplica(replica.id, now_);
    replica = {.id = next_id_++, .mirror = std::make_unique<Mirror>()};
    book_.AddReplica(replica.id, ProposerOf(replica_idx), {.max_sessions = 4, .max_context_tokens = 100}, now_);
  }

  void Act(unsigned what) {
    now_ += absl::Milliseconds(what + 1);
    const SequenceId id = 1 + what % kNumSequences;
    if ((what & 8) != 0) {
      book_.Close(id);
      Open(id);
    }
    if ((what & 16) != 0) book_.EndWait();
    const std::vector<int32_t> committed(what & 3, 6);
    lengths_[id] += committed.size();
    book_.Advance(id, committed, {.node_budget = static_cast<int32_t>(what & 4), .proposers = ~0u});
  }

  void Flush() {
    for (Replica& replica : replicas_) {
      book_.MarkFlushed(replica.id, {.patience = absl::Milliseconds(1), .step = absl::Milliseconds(2)}, now_);
      while (const std::optional<v1::ProposeRequest> request = book_.NextRequest(replica.id, now_)) {
        replica.mirror->Take(*request);
      }
      book_.SilentSince(replica.id);
    }
    book_.WaitUntil(now_, now_ + absl::Milliseconds(5));
    book_.NextRetry();
  }

  void CheckProposal(const Proposal& proposal) const {
    FT_CHECK(proposal.sequence_id >= 1 && proposal.sequence_id <= kNumSequences && proposal.proposer_idx < 2);
    FT_CHECK(proposal.asked <= proposal.arrived);
    FT_CHECK(speculation::Validate(proposal.tree, kNumTokens, kMaxNodes).ok());
    FT_CHECK(proposal.tree.position <= lengths_[proposal.sequence_id]);
    FT_CHECK(IsTested(proposal.sequence_id) || proposal.tree.sampled.empty());
    for (const speculation::TreeNode& node : proposal.tree.nodes) {
      FT_CHECK(node.proposers == 1u << proposal.proposer_idx);
    }
  }

  absl::Time now_ = absl::UnixEpoch();
  SessionBook book_{2, {.initial = absl::Milliseconds(10), .max = absl::Milliseconds(50)}, 1};
  std::array<Replica, kNumReplicas> replicas_;
  std::array<size_t, kNumSequences + 1> lengths_ = {};  // by sequence id
  ReplicaId next_id_ = 1;
};

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  std::vector<absl::string_view> messages = testing::SplitMessages(data, size);
  messages.resize(std::min(messages.size(), verifier::kMaxMessages));
  verifier::Run run;
  for (const absl::string_view message : messages) run.Take(message);
  return 0;
}
