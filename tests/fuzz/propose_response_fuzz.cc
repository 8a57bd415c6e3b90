// SPDX-License-Identifier: Apache-2.0
// Reads the input as the messages of proposers' streams, and gives them to the verifier's session book while sequences
// begin, grow and end. The first replica reads features and masks. The book gives the engine only valid trees, and
// demands no more features than the replica has granted credit for. Its own messages stay consistent: an honest
// proposer that reads them refuses nothing and misses nothing, masks belong to the position at which they are sent, and
// features to theirs.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "common/rpc/parse_message.h"
#include "common/rpc/proposal_protocol.h"
#include "kernels/check.h"
#include "proposer_service/event_checks.h"
#include "proposer_service/session_table.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/reading_proposer.h"
#include "verifier_service/proposers/check_proposer.h"
#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {
namespace {

constexpr int32_t kNumTokens = 1000, kMaxNodes = 64;
constexpr size_t kNumReplicas = 3, kMaxMessages = 24;
constexpr SequenceId kNumSequences = 3;  // 2 has rejection sampling
constexpr size_t kLongPrompt = 20'000;   // takes two messages
constexpr size_t kFeatureWidth = 4, kPositionBytes = kFeatureWidth * sizeof(uint16_t);

FeatureSource SmallFeatures() {
  static const auto features = std::make_shared<const speculation::TargetFeatures>(
      speculation::TargetFeatures{.layers = {3}, .target_hidden_size = kFeatureWidth});
  return features;
}

ReplicaLimits LimitsOf(size_t replica_idx) {
  if (replica_idx != 0) return {.max_sessions = 4, .max_context_tokens = 100};
  return {.max_sessions = 4, .reads_allowed_tokens = true, .features = SmallFeatures()};
}

// The feature of a position, and the mask of a position, say which position it is.
uint16_t FeatureOf(uint64_t position) { return static_cast<uint16_t>(position); }

std::vector<uint32_t> MaskOf(size_t position) {
  std::vector<uint32_t> mask(position / 32 + 1);
  mask.back() = uint32_t{1} << position % 32;
  return mask;
}

// An honest proposer behind a stream.
class Mirror {
 public:
  explicit Mirror(const ReplicaLimits& limits)
      : limits_(limits),
        proposer_(limits.features, kRoom.max_stream_feature_bytes),
        table_({.proposer = proposer_, .room = room_, .metrics = Metrics()}) {
    Answer();  // grants credit
  }

  void Take(const v1::ProposeRequest& written) {
    static const rpc::MessageBounds bounds = proposer::RequestBounds();
    const std::string bytes = written.SerializeAsString();
    FT_CHECK(bytes.size() <= size_t{rpc::kMaxProposeRequestBytes});
    v1::ProposeRequest request;
    FT_CHECK(rpc::ParseMessage(bytes, bounds, request).ok());
    for (const v1::OpenSession& open : request.opens()) CheckMask(open.allowed_tokens(), open.token_ids_size());
    for (const v1::AdvanceSession& advance : request.advances()) {
      CheckMask(advance.allowed_tokens(), advance.base_position() + advance.token_ids_size());
    }
    for (const v1::FeatureChunk& chunk : request.features()) CheckFeatures(chunk);
    FT_CHECK(table_.Apply(request).ok());
    Answer();
  }

 private:
  static constexpr proposer::SessionLimits kRoom = {
      .max_sessions = 1 << 20, .max_stream_share = 1, .max_stream_feature_bytes = int64_t{1} << 40};

  static proposer::ProposerMetrics& Metrics() {
    static telemetry::Metrics registry;
    static proposer::ProposerMetrics metrics(registry, {});
    return metrics;
  }

  void Answer() {
    for (v1::ProposeResponse response; table_.HasResponse() && table_.TakeResponse(response);) {
      FT_CHECK(response.refusals_size() == 0 && response.unknown_session_ids_size() == 0);
    }
  }

  void CheckMask(const std::string& mask, uint64_t position) const {
    if (mask.empty()) return;
    FT_CHECK(limits_.reads_allowed_tokens);
    FT_CHECK(speculation::AllowedTokens(mask).Allows(static_cast<int32_t>(position)));
  }

  static void CheckFeatures(const v1::FeatureChunk& chunk) {
    for (size_t i = 0; i < chunk.values().size() / kPositionBytes; ++i) {
      uint16_t value = 0;
      std::memcpy(&value, chunk.values().data() + i * kPositionBytes, sizeof(value));
      FT_CHECK(value == FeatureOf(chunk.first_position() + i));
    }
  }

  const ReplicaLimits limits_;
  testing::ReadingProposer proposer_;
  proposer::SessionRoom room_{kRoom, Metrics().room()};
  proposer::SessionTable table_;
};

struct Replica {
  ReplicaId id = 0;
  std::unique_ptr<Mirror> mirror;
  uint64_t num_unused = 0;  // bytes of granted features that were not sent
};

class Run {
 public:
  Run() {
    for (SequenceId id = 1; id <= kNumSequences; ++id) Open(id, {});
    for (size_t i = 0; i < kNumReplicas; ++i) Connect(i);
    Flush({});
  }

  // The first byte chooses the replica that sends the rest. Both bytes choose what the engine does before that.
  void Take(absl::string_view message) {
    const uint8_t first = TakeByte(message), second = TakeByte(message);
    const size_t replica_idx = first % kNumReplicas;
    const EngineOptions options(second);
    Act(first >> 2, options);
    v1::ProposeResponse response;
    static const rpc::MessageBounds bounds = AnswerBounds();
    if (!rpc::ParseMessage(message, bounds, response).ok()) return Connect(replica_idx);
    Replica& replica = replicas_[replica_idx];
    replica.num_unused += std::min(response.feature_credit_bytes(), ~uint64_t{0} - replica.num_unused);
    const rpc::WireTreeLimits limits = {
        .num_tokens = kNumTokens, .max_nodes = kMaxNodes, .proposers = 1u << ProposerOf(replica_idx)};
    const AnswerVerdict verdict = book_.TakeAnswer(replica.id, CheckAnswer(response, limits), now_);
    FT_CHECK(verdict.num_trees + verdict.num_stale_trees + verdict.num_bad_trees <=
             static_cast<uint64_t>(response.trees_size()));
    book_.RetryRefused(now_);
    for (const Proposal& proposal : book_.TakeProposals()) CheckProposal(proposal);
    Flush(options);
  }

 private:
  // What the engine has for proposers, beside the tokens.
  struct EngineOptions {
    EngineOptions() = default;
    explicit EngineOptions(uint8_t bits)
        : supply(static_cast<Supply>(bits & 3)),
          masks_openings((bits & 4) != 0),
          masks_advances((bits & 8) != 0),
          has_wide_masks((bits & 16) != 0),
          has_long_prompts((bits & 32) != 0),
          proposers((bits & 64) != 0 ? 1u : ~0u) {}

    enum class Supply : uint8_t { kWhole, kNone, kPart, kLater } supply = Supply::kWhole;
    bool masks_openings = false, masks_advances = false;
    bool has_wide_masks = false;  // wider than the protocol allows
    bool has_long_prompts = false;
    uint32_t proposers = ~0u;  // that are asked
  };

  static uint8_t TakeByte(absl::string_view& bytes) {
    if (bytes.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    return byte;
  }
  static uint32_t ProposerOf(size_t replica_idx) { return replica_idx == 2 ? 1 : 0; }
  static bool IsTested(SequenceId id) { return id == 2; }

  // The mask of a sequence's next token. Empty: it has none.
  std::vector<uint32_t> NextMask(SequenceId id, bool has_mask, const EngineOptions& options) const {
    if (!has_mask) return {};
    std::vector<uint32_t> mask = MaskOf(lengths_[id]);
    if (options.has_wide_masks) {
      mask.resize(rpc::kMaxAllowedTokensBytes / sizeof(uint32_t) + 1);
      mask.back() = 1;
    }
    return mask;
  }

  void Open(SequenceId id, const EngineOptions& options) {
    std::vector<int32_t> prompt = {5, 6, 7, 5, 6};
    if (options.has_long_prompts) prompt.resize(kLongPrompt, 7);
    lengths_[id] = prompt.size();
    const std::vector<uint32_t> mask = NextMask(id, options.masks_openings, options);
    book_.Open(
        {.sequence_id = id,
         .token_ids = prompt,
         .rule = IsTested(id) ? kernels::VerificationRule::kRejectionSampling : kernels::VerificationRule::kKeyedDraw,
         .tenant = "t",
         .allowed_tokens = mask},
        now_);
    book_.Advance(id, {}, {.node_budget = 8, .proposers = options.proposers});
  }

  // A stream that ends takes its replica's sessions with it; the replica comes back with a new id.
  void Connect(size_t replica_idx) {
    Replica& replica = replicas_[replica_idx];
    if (replica.id != 0) book_.RemoveReplica(replica.id, now_);
    const ReplicaLimits limits = LimitsOf(replica_idx);
    replica = {.id = next_id_++, .mirror = std::make_unique<Mirror>(limits)};
    book_.AddReplica(replica.id, ProposerOf(replica_idx), limits, now_);
  }

  void Act(unsigned what, const EngineOptions& options) {
    now_ += absl::Milliseconds(what + 1);
    const SequenceId id = 1 + what % kNumSequences;
    if ((what & 8) != 0) {
      book_.Close(id);
      Open(id, options);
    }
    if ((what & 16) != 0) book_.EndWait();
    const std::vector<int32_t> committed(what & 3, 6);
    lengths_[id] += committed.size();
    const std::vector<uint32_t> mask = NextMask(id, options.masks_advances, options);
    book_.Advance(
        id, committed,
        {.node_budget = static_cast<int32_t>(what & 4), .proposers = options.proposers, .allowed_tokens = mask});
  }

  void Flush(const EngineOptions& options) {
    Supply(options);
    for (Replica& replica : replicas_) {
      book_.MarkFlushed(replica.id, {.patience = absl::Milliseconds(1), .step = absl::Milliseconds(2)}, now_);
      while (const std::optional<v1::ProposeRequest> request = book_.NextRequest(replica.id, now_)) {
        for (const v1::FeatureChunk& chunk : request->features()) {
          FT_CHECK(chunk.values().size() <= replica.num_unused);
          replica.num_unused -= chunk.values().size();
        }
        replica.mirror->Take(*request);
      }
      book_.SilentSince(replica.id);
    }
    book_.WaitUntil(now_, now_ + absl::Milliseconds(5));
    book_.NextRetry();
  }

  // Gives what sessions lack.
  void Supply(const EngineOptions& options) {
    using Supply = EngineOptions::Supply;
    std::array<uint64_t, kNumReplicas> num_demanded = {};
    for (const FeatureDemand& demand : book_.FeatureDemands()) {
      const auto replica = std::ranges::find(replicas_, demand.replica_id, &Replica::id);
      FT_CHECK(replica != replicas_.end() && demand.source == SmallFeatures().get());
      FT_CHECK(0 <= demand.begin && demand.begin < demand.end);
      FT_CHECK(static_cast<size_t>(demand.end) < lengths_.at(demand.sequence_id));
      uint64_t& num_bytes = num_demanded[replica - replicas_.begin()];
      num_bytes += static_cast<uint64_t>(demand.end - demand.begin) * kPositionBytes;
      FT_CHECK(num_bytes <= replica->num_unused);
      // Features that the engine never had are missing at a text's beginning.
      const bool is_later = options.supply == Supply::kLater && demand.begin == 0;
      const int32_t begin = demand.begin + (is_later ? 1 : 0);
      const int32_t size = demand.end - demand.begin;
      Give(demand, begin, begin + (options.supply == Supply::kPart ? (size + 1) / 2 : size), options);
    }
  }

  void Give(const FeatureDemand& demand, int32_t begin, int32_t end, const EngineOptions& options) {
    end = std::min(end, static_cast<int32_t>(lengths_.at(demand.sequence_id)) - 1);
    if (begin >= end || options.supply == EngineOptions::Supply::kNone) return;
    std::vector<uint16_t> values;
    for (int32_t position = begin; position < end; ++position) {
      values.insert(values.end(), kFeatureWidth, FeatureOf(static_cast<uint64_t>(position)));
    }
    book_.GiveFeatures(demand, begin, std::move(values));
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
