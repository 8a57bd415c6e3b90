// SPDX-License-Identifier: Apache-2.0
// Reads the input as the messages of a verifier's stream, and gives them to a proposer's session table. Every answer
// keeps the protocol's limits, is about sessions that the verifier named, and has only valid trees.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "common/rpc/parse_message.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/tree_conversion.h"
#include "kernels/check.h"
#include "proposer_service/event_checks.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/session_table.h"
#include "proposer_service/suffix/suffix.h"
#include "tests/fuzz/messages.h"

namespace foretoken::proposer {
namespace {

constexpr SessionLimits kLimits = {.max_sessions = 8,
                                   .max_total_tokens = 1000,
                                   .max_stream_share = 1,
                                   .max_context_tokens = 400,
                                   .max_stream_feature_bytes = 1024,
                                   .max_tree_nodes = 16};
constexpr int64_t kFeatureWidth = 4;
constexpr size_t kMaxMessages = 32;

using SessionIds = std::set<uint64_t>;

// Reads features, and guesses nothing.
class FeatureReader : public Proposer {
 public:
  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction&) override { return std::make_unique<Reader>(); }
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override {
    std::vector<speculation::TokenTree> trees;
    for (const ProposalRequest& request : requests) trees.push_back({.position = request.session->position()});
    return trees;
  }

 private:
  class Reader : public Session {
   public:
    void Append(std::span<const int32_t> token_ids) override { position_ += token_ids.size(); }
    void AppendFeatures(uint64_t first_position, std::span<const uint16_t> values) override {
      FT_CHECK(values.size() % kFeatureWidth == 0);
      FT_CHECK(!next_.has_value() || first_position == *next_);
      next_ = first_position + values.size() / kFeatureWidth;
      num_unused_ += static_cast<int64_t>(values.size());
      FT_CHECK(num_unused_ * 2 <= kLimits.max_stream_feature_bytes);
      if (first_position % 3 == 0) num_unused_ = 0;
    }
    int64_t num_unused_feature_values() const override { return num_unused_; }
    uint64_t position() const override { return position_; }
    Readiness readiness() const override { return Readiness::kReady; }

   private:
    uint64_t position_ = 0;
    std::optional<uint64_t> next_;  // position of the next feature
    int64_t num_unused_ = 0;
  };

  const ProposerDescription description_ = {
      .method = "eagle3",
      .features = std::make_shared<const speculation::TargetFeatures>(
          speculation::TargetFeatures{.layers = {3}, .target_hidden_size = kFeatureWidth})};
};

void AddIds(const v1::ProposeRequest& request, SessionIds& named) {
  for (const v1::OpenSession& open : request.opens()) named.insert(open.session_id());
  for (const v1::AdvanceSession& advance : request.advances()) named.insert(advance.session_id());
}

void CheckTree(const v1::TokenTree& tree, const SessionIds& named) {
  FT_CHECK(named.contains(tree.session_id()));
  FT_CHECK(tree.position() <= static_cast<uint64_t>(kLimits.max_context_tokens));
  constexpr int32_t kMaxId = std::numeric_limits<int32_t>::max();
  for (const uint32_t id : tree.token_ids()) {
    if (id == kMaxId) return;  // a valid id that no limit below can allow
  }
  FT_CHECK(rpc::FromProto(tree, {.num_tokens = kMaxId, .max_nodes = kLimits.max_tree_nodes, .proposers = 1}).ok());
}

void CheckResponse(const v1::ProposeResponse& response, const SessionIds& named) {
  FT_CHECK(response.ByteSizeLong() <= size_t{rpc::kMaxProposeResponseBytes});
  for (const v1::TokenTree& tree : response.trees()) CheckTree(tree, named);
  for (const v1::RefusedSession& refused : response.refusals()) {
    FT_CHECK(named.contains(refused.session_id()));
    FT_CHECK(refused.reason() != v1::REFUSAL_REASON_UNSPECIFIED);
    FT_CHECK(refused.detail().size() <= rpc::kMaxRefusalDetailBytes);
  }
  for (const uint64_t session_id : response.unknown_session_ids()) FT_CHECK(named.contains(session_id));
}

void Run(const std::vector<absl::string_view>& messages, Proposer& proposer) {
  static telemetry::Metrics registry;
  static ProposerMetrics metrics(registry, {});
  static const rpc::MessageBounds bounds = RequestBounds();
  static const TraceOptions traces = {.tracer = tracing::Tracer(
                                          tracing::Sampler(), [] { return uint64_t{1}; }, [](const tracing::Span&) {}),
                                      .traces_proposals = true};
  SessionRoom room(kLimits, metrics.room());
  SessionTable table({.proposer = proposer, .room = room, .metrics = metrics, .trace = &traces});
  SessionIds named;
  for (const absl::string_view message : messages) {
    v1::ProposeRequest request;
    if (!rpc::ParseMessage(message, bounds, request).ok() || !table.Apply(request).ok()) return;  // ends the stream
    AddIds(request, named);
    for (v1::ProposeResponse response; table.HasResponse() && table.TakeResponse(response);) {
      CheckResponse(response, named);
    }
  }
}

}  // namespace
}  // namespace foretoken::proposer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  std::vector<absl::string_view> messages = testing::SplitMessages(data, size);
  messages.resize(std::min(messages.size(), proposer::kMaxMessages));
  proposer::NgramProposer ngram({});
  proposer::Run(messages, ngram);
  proposer::SuffixProposer suffix({.shared_tokens = 1024});
  proposer::Run(messages, suffix);
  suffix.WaitUntilLearned();
  proposer::FeatureReader drafter;
  proposer::Run(messages, drafter);
  return 0;
}
