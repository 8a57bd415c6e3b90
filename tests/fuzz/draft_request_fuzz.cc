// SPDX-License-Identifier: Apache-2.0
// Reads the input as the messages of a verifier's stream, and gives them to a draft proposer: one with a small language
// model, or one whose drafter reads features. Behind each message the trees grow by as many passes as the byte before
// it says. Every answer is one that a verifier can read (verifier_stream.h), the forest's blocks, slots and trees agree
// at any time, and an ended stream leaves no session.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/make_backend.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/verifier_stream.h"
#include "tests/testing/models/random_model.h"
#include "tests/testing/models/tiny_drafters.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::proposer {
namespace {

constexpr size_t kMaxMessages = 24;
constexpr int32_t kMaxContextTokens = 160;
// There is room for three masks of 64 KiB.
constexpr SessionLimits kLimits = {.max_sessions = 4,
                                   .max_total_tokens = 8192,
                                   .max_stream_share = 1,
                                   .max_context_tokens = kMaxContextTokens,
                                   .max_stream_feature_bytes = 8192,
                                   .max_tree_nodes = 16};
constexpr DraftForestOptions kForest = {.num_children = 4,
                                        .max_children = 8,
                                        .max_tree_rows = 4,
                                        .max_context_rows = 48,
                                        .max_grown_nodes = 12,
                                        .min_path_chance = 0.01f};
// Too few for the contexts of all sessions.
constexpr int32_t kNumBlocks = 24;

const model::ModelConfig kSmallConfig = {.hidden_size = 16,
                                         .intermediate_size = 16,
                                         .num_layers = 1,
                                         .num_heads = 1,
                                         .num_kv_heads = 1,
                                         .head_dim = 16,
                                         .vocab_size = 300,
                                         .max_position_embeddings = 512,
                                         .sliding_windows = std::vector<std::optional<int64_t>>(1)};

// A language model of random weights.
class SmallModel : public DraftModel {
 public:
  const Limits& limits() const override { return limits_; }
  kernels::ConstTensorView Forward(const DraftPass& pass) override { return transformer_.Forward(pass.batch, kv_); }
  void Move(std::span<const kernels::KvMove> moves) override { transformer_.MoveKv(kv_, moves); }
  void Synchronize() override { transformer_.Synchronize(); }
  kernels::Backend& backend() const override { return *backend_; }

 private:
  static constexpr int32_t kMaxRows = 64, kMaxPositions = 256;

  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::MakeBackend({.device = "cpu", .num_threads = 1, .isa = "auto"}).backend;
  model::Transformer transformer_{kSmallConfig,
                                  testing::RandomWeights(kSmallConfig, *backend_, /*scale=*/0.3f),
                                  *backend_,
                                  {.max_rows = kMaxRows, .max_logit_rows = kMaxRows, .max_positions = kMaxPositions}};
  const model::KvCache kv_ = transformer_.MakeKvCache(kNumBlocks);
  const Limits limits_ = {.max_rows = kMaxRows,
                          .max_positions = kMaxPositions,
                          .num_blocks = kNumBlocks,
                          .vocab_size = kSmallConfig.vocab_size,
                          .num_tokens = static_cast<int32_t>(kSmallConfig.vocab_size)};
};

// Lends a model to one proposer, because a model takes long to make.
class LentModel : public DraftModel {
 public:
  explicit LentModel(DraftModel& model) : model_(model) {}
  const Limits& limits() const override { return model_.limits(); }
  kernels::ConstTensorView Forward(const DraftPass& pass) override { return model_.Forward(pass); }
  void Move(std::span<const kernels::KvMove> moves) override { model_.Move(moves); }
  void Synchronize() override { model_.Synchronize(); }
  std::span<const float> confidences() const override { return model_.confidences(); }
  kernels::Backend& backend() const override { return model_.backend(); }
  model::ExpertUse expert_use() const override { return model_.expert_use(); }

 private:
  DraftModel& model_;
};

Drafter& SmallDrafter() {
  static auto& drafter =
      *new Drafter{.model = std::make_unique<SmallModel>(),
                   .description = {.method = "draft", .num_tokens = static_cast<int32_t>(kSmallConfig.vocab_size)}};
  return drafter;
}

Drafter& SmallFeatureDrafter() {
  static auto& drafter = *new Drafter([] {
    const testing::TinyTarget target;
    const testing::TempDir directory;
    testing::MakeTinyEagle3({}).Write(directory);
    DraftOptions options = {.model_directory = directory.path(),
                            .target_directory = target.directory(),
                            .num_threads = 1,
                            .kv_cache_mb = 1,
                            .forest = kForest};
    return LoadDrafter("eagle3", options).value();
  }());
  return drafter;
}

void Run(const std::vector<absl::string_view>& messages, Drafter& drafter) {
  static telemetry::Metrics registry;
  absl::Time now = absl::UnixEpoch();
  DraftProposer proposer({.model = std::make_unique<LentModel>(*drafter.model), .description = drafter.description},
                         kForest, registry, [&now] { return now += absl::Microseconds(100); });
  {
    testing::VerifierStream stream(proposer, kLimits);
    for (const absl::string_view message : messages) {
      const auto first = static_cast<uint8_t>(message.empty() ? 0 : message.front());
      if (!stream.Take(message.substr(message.empty() ? 0 : 1))) break;
      for (int i = 0; i < first % 8 && proposer.Step(); ++i) stream.TakeAnswers();
      proposer.forest().CheckIntegrity();
      stream.TakeAnswers();
    }
  }
  proposer.Step();
  FT_CHECK(proposer.forest().num_sessions() == 0);
  proposer.forest().CheckIntegrity();
}

}  // namespace
}  // namespace foretoken::proposer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  std::vector<absl::string_view> messages = testing::SplitMessages(data, size);
  messages.resize(std::min(messages.size(), proposer::kMaxMessages));
  const bool reads_features = size > 0 && (data[0] & 128) != 0;
  proposer::Run(messages, reads_features ? proposer::SmallFeatureDrafter() : proposer::SmallDrafter());
  return 0;
}
