// SPDX-License-Identifier: Apache-2.0
// The features that the engine gives to drafters, against features computed position by position. If this test fails,
// drafters guess from features of other tokens; the tokens of clients stay right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/feature_plane.h"
#include "kernels/check.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;
using testing::Random;
using testing::Results;

constexpr int32_t kHidden = 256;  // of the demo target

// Guesses at random, and keeps the features and the tokens of every session.
class RecordingDrafter : public testing::GuessingProposer {
 public:
  struct Record {
    std::vector<int32_t> token_ids;
    int32_t begin = -1;  // of the features; -1: none came
    std::vector<uint16_t> values;
  };

  explicit RecordingDrafter(std::vector<int32_t> layers)
      : RecordingDrafter(speculation::TargetFeatures{.layers = std::move(layers), .target_hidden_size = kHidden}) {}
  explicit RecordingDrafter(speculation::TargetFeatures features) : GuessingProposer("drafter", Random(5)) {
    description_ = GuessingProposer::Describe();
    description_.features = std::make_shared<const speculation::TargetFeatures>(std::move(features));
  }
  const proposer::ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<proposer::Session> Open(const proposer::SessionIntroduction& introduction) override {
    records.push_back(std::make_shared<Record>());
    return std::make_unique<RecordingSession>(GuessingProposer::Open(introduction), records.back());
  }
  std::vector<speculation::TokenTree> Propose(std::span<const proposer::ProposalRequest> requests) override {
    std::vector<proposer::ProposalRequest> inner(requests.begin(), requests.end());
    for (proposer::ProposalRequest& request : inner) {
      request.session = static_cast<RecordingSession*>(request.session)->inner();
    }
    return GuessingProposer::Propose(inner);
  }

  std::vector<std::shared_ptr<Record>> records;  // shared with the sessions

 private:
  class RecordingSession : public proposer::Session {
   public:
    RecordingSession(std::unique_ptr<Session> inner, std::shared_ptr<Record> record)
        : inner_(std::move(inner)), record_(std::move(record)) {}
    void Append(std::span<const int32_t> token_ids) override {
      inner_->Append(token_ids);
      record_->token_ids.insert(record_->token_ids.end(), token_ids.begin(), token_ids.end());
    }
    void AppendFeatures(uint64_t first_position, std::span<const uint16_t> values) override {
      Record& record = *record_;
      const auto end = record.begin + static_cast<int32_t>(record.values.size()) / kHidden;
      if (record.begin < 0) record.begin = static_cast<int32_t>(first_position);
      if (record.values.empty() || static_cast<int32_t>(first_position) == end) {
        record.values.insert(record.values.end(), values.begin(), values.end());
      } else {
        ADD_FAILURE() << "a gap: expected " << end << ", got " << first_position;
      }
    }
    void Want(const proposer::TreeRequest& request) override { inner_->Want(request); }
    uint64_t position() const override { return inner_->position(); }
    Session* inner() { return inner_.get(); }

   private:
    std::unique_ptr<Session> inner_;
    std::shared_ptr<Record> record_;
  };

  proposer::ProposerDescription description_;
};

class EngineFeaturesTest : public testing::EngineFixture {
 protected:
  // The features of the positions from `begin` on, computed one by one.
  static std::vector<uint16_t> Expected(const proposer::ProposerDescription& description,
                                        const RecordingDrafter::Record& record) {
    model::KvCache kv = model_->transformer->MakeKvCache(64);
    model::FeaturePlane plane(*description.features, *model_->transformer, 64);
    while (!plane.Prepare()) continue;
    model_->transformer->Capture(plane.layers());
    const std::vector<int32_t> blocks = [] {
      std::vector<int32_t> all(64);
      for (int32_t i = 0; i < 64; ++i) all[i] = 63 - i;
      return all;
    }();
    const auto end = record.begin + static_cast<int32_t>(record.values.size()) / kHidden;
    for (int32_t position = 0; position < end; ++position) {
      model::ForwardBatch batch;
      model::AppendSegment({.block_table = blocks,
                            .first_position = position,
                            .chain = std::span(record.token_ids).subspan(position, 1)},
                           &batch);
      model_->transformer->Forward(batch, kv);
      const model::FeatureRow row = {.row = 0, .slot = batch.slots[0]};
      plane.Store({&row, 1});
    }
    std::vector<uint16_t> values = plane.Read(blocks, record.begin, end);
    model_->transformer->Capture({});
    return values;
  }

  // Every session got the right features of all positions from `begin` on, but for the last tokens.
  static void ExpectRightFeatures(const RecordingDrafter& drafter, int32_t max_begin = 0) {
    for (const auto& record : drafter.records) {
      ASSERT_GE(record->begin, 0);
      EXPECT_LE(record->begin, max_begin);
      EXPECT_GT(record->values.size(), size_t{20} * kHidden);
      EXPECT_EQ(record->values, Expected(drafter.Describe(), *record));
    }
  }
};

TEST_F(EngineFeaturesTest, DraftersGetTheFeaturesOfAllCommittedTokens) {
  std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0, 40),
                                             Request("import os\nimport sys\n", 0.8f, 40),
                                             Request("x = 1\nx = 1\nx = 1\n", 1, 40)};
  requests[1].num_samples = 2;
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  for (const std::vector<int32_t>& layers : {std::vector<int32_t>{5}, std::vector<int32_t>{}}) {
    RecordingDrafter drafter(layers);
    InProcessProposers several({{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}, &drafter});
    EXPECT_EQ(Generate(requests, several), truth);
    ASSERT_EQ(drafter.records.size(), 4);
    ExpectRightFeatures(drafter);
  }
}

// Later sequences share blocks of the first, and their features.
TEST_F(EngineFeaturesTest, AHitInThePrefixCacheHasItsFeatures) {
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "value = compute(value)\n";
  RecordingDrafter drafter({4});
  InProcessProposers proposers({&drafter});
  std::vector<GenerationRequest> requests = {Request(prompt, 0, 40)};
  requests[0].num_samples = 3;
  const Results results = Generate(requests, proposers);
  EXPECT_GT(stats_.num_cached_tokens, 50);
  ASSERT_EQ(drafter.records.size(), 3);
  ExpectRightFeatures(drafter);
  EXPECT_EQ(drafter.records[0]->begin, 0);
  EXPECT_EQ(drafter.records[2]->begin, 0);
}

TEST_F(EngineFeaturesTest, APreemptedSequenceGetsOn) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(Request("import os\nimport sys\n", 0.9f, 120));
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  RecordingDrafter drafter({2});
  InProcessProposers proposers({&drafter});
  EXPECT_EQ(Generate(requests, proposers, {.num_blocks = 24}), truth);
  EXPECT_GT(stats_.num_preemptions, 0);
  ASSERT_EQ(drafter.records.size(), 6);
  ExpectRightFeatures(drafter);
}

// Its drafters are here while the test says so. They ask for few positions at a time.
class LateProposers : public InProcessProposers {
 public:
  explicit LateProposers(RecordingDrafter* drafter) : InProcessProposers({drafter}) { set_max_demand(8); }
  std::vector<FeatureSource> FeatureSources() override {
    return is_here ? InProcessProposers::FeatureSources() : std::vector<FeatureSource>();
  }
  void GiveFeatures(const FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values) override {
    EXPECT_LE(values.size(), size_t{kHidden} * static_cast<size_t>(demand.end - demand.begin));
    InProcessProposers::GiveFeatures(demand, begin, std::move(values));
  }
  bool is_here = false;
};

// A drafter that connects while sequences run gets the features of what is computed from then on.
TEST_F(EngineFeaturesTest, ADrafterThatComesLaterGetsLaterFeatures) {
  const std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0.7f, 90)};
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  RecordingDrafter drafter({8});
  LateProposers proposers(&drafter);
  EXPECT_EQ(Generate(requests, proposers, {}, [&](int step) { proposers.is_here = step >= 20; }), truth);
  ASSERT_EQ(drafter.records.size(), 1);
  EXPECT_GT(drafter.records[0]->begin, 10);
  ExpectRightFeatures(drafter, /*max_begin=*/60);
}

// The blocks of a cached prefix are older than the features of a drafter that came later.
TEST_F(EngineFeaturesTest, APrefixThatWasCachedBeforeTheDrafterCameHasNoFeatures) {
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "value = compute(value)\n";
  const std::vector<GenerationRequest> requests = {Request(prompt, 0, 4), Request(prompt, 0, 40)};
  RecordingDrafter drafter({4});
  LateProposers proposers(&drafter);
  EngineOptions options;
  options.config.max_running_samples = 1;
  Generate(requests, proposers, options, [&](int) { proposers.is_here |= drafter.records.size() == 2; });
  EXPECT_GT(stats_.num_cached_tokens, 40);
  ASSERT_EQ(drafter.records.size(), 2);
  EXPECT_EQ(drafter.records[0]->begin, -1);
  EXPECT_GT(drafter.records[1]->begin, 40);
  drafter.records.erase(drafter.records.begin());
  ExpectRightFeatures(drafter, static_cast<int32_t>(requests[1].prompt.size()) + 2);
}

// The blocks of the second request had features of the first one's text, which it does not read itself. What the third
// shares with it has none.
TEST_F(EngineFeaturesTest, ASequenceThatAsksNoDrafterHasNoFeatures) {
  std::string others, prompt;
  for (int i = 0; i < 12; ++i) others += "other = import(other)\n", prompt += "value = compute(value)\n";
  std::vector<GenerationRequest> requests = {Request(others, 0, 40), Request(prompt, 0, 4), Request(prompt, 0, 40)};
  RecordingDrafter drafter({4});
  InProcessProposers proposers({&drafter});
  EngineOptions options = {.num_blocks = 7};  // as many as the first request takes
  options.config.max_running_samples = 1;
  for (const bool speculates : {true, false}) {
    drafter.records.clear();
    if (!speculates) requests[1].speculation.mode = SpeculationMode::kOff;
    Generate(requests, proposers, options);
    EXPECT_GT(stats_.num_cached_tokens, 40);
    ASSERT_EQ(drafter.records.size(), speculates ? 3 : 2);
    EXPECT_EQ(drafter.records[0]->begin, 0);
    EXPECT_EQ(drafter.records.back()->begin > 40, !speculates);
    if (speculates) drafter.records.erase(drafter.records.begin() + 1);  // has too few tokens
    ExpectRightFeatures(drafter, static_cast<int32_t>(requests[2].prompt.size()) + 2);
  }
}

// A device whose room is known once the model is loaded. Like a GPU, it ends the process when it has none.
class SmallBackend : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void set_num_free_bytes(size_t num_bytes) { num_free_bytes_ = num_bytes; }
  std::optional<std::string> MemoryRefusal(const kernels::MemoryNeed& need) const override {
    ++num_asked;
    if (need.weight_bytes + need.kv_bytes + need.pass_bytes <= num_free_bytes_) return std::nullopt;
    return "device: too little";
  }
  kernels::Buffer Allocate(size_t num_bytes) override {
    FT_CHECK(num_bytes <= num_free_bytes_);
    if (num_free_bytes_ < kPlenty) num_free_bytes_ -= num_bytes;
    return ForwardingBackend::Allocate(num_bytes);
  }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    size_t num_bytes = 0;
    for (const kernels::ConstTensorView& part : source.parts) num_bytes += part.num_bytes();
    FT_CHECK(num_bytes <= num_free_bytes_);
    if (num_free_bytes_ < kPlenty) num_free_bytes_ -= num_bytes;
    return ForwardingBackend::PrepareWeight(source);
  }

  static constexpr size_t kPlenty = size_t{1} << 40;
  mutable int num_asked = 0;

 private:
  size_t num_free_bytes_ = kPlenty;
};

class RefusedProposers : public InProcessProposers {
 public:
  using InProcessProposers::InProcessProposers;
  void RefuseFeatures(const FeatureSource& source, const std::string& why) override {
    refused.emplace_back(source, why);
  }
  std::vector<std::pair<FeatureSource, std::string>> refused;
};

TEST_F(EngineFeaturesTest, FeaturesThatTheDeviceHasNoRoomForAreRefused) {
  const std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0.7f, 40)};
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  speculation::FeatureProjection projection = {.num_outputs = 4 * kHidden};
  projection.weight.assign(size_t{4} * kHidden * 2 * kHidden, 0);
  RecordingDrafter large({.layers = {3, 4}, .target_hidden_size = kHidden, .projection = projection}), small({5});
  RefusedProposers proposers({&large, &small});
  SmallBackend* backend = nullptr;
  const testing::LoadedModel loaded = testing::LoadModel(testing::SourcePath("deploy/demo/target"),
                                                         {.wrap_backend = [&](std::unique_ptr<kernels::Backend> real) {
                                                           auto made = std::make_unique<SmallBackend>(std::move(real));
                                                           backend = made.get();
                                                           return made;
                                                         }});
  Use(*loaded.transformer);
  const size_t num_needed = [&] {
    const kernels::MemoryNeed need =
        model::FeaturePlane::NeedOf(*small.Describe().features, *loaded.transformer, EngineOptions().num_blocks);
    return need.weight_bytes + need.kv_bytes + need.pass_bytes;
  }();
  const auto before_step = [&](int step) {
    if (step == 0) backend->set_num_free_bytes(num_needed + (64 << 10));  // lists of numbers take some, too
    if (step == 1) backend->set_num_free_bytes(SmallBackend::kPlenty);
  };
  EXPECT_EQ(Generate(requests, proposers, {}, before_step), truth);
  EXPECT_EQ(backend->num_asked, 2);
  ASSERT_EQ(proposers.refused.size(), 1);
  EXPECT_EQ(proposers.refused[0].first, large.Describe().features);
  EXPECT_THAT(proposers.refused[0].second,
              ::testing::StartsWith("its features: expected room for 14 MiB on the device, of which 8 MiB"));
  EXPECT_EQ(large.records.at(0)->begin, -1);
  ExpectRightFeatures(small);
}

// The weight of the first takes its memory in later steps.
TEST_F(EngineFeaturesTest, RoomThatAPlaneWillTakeIsNotGivenToAnother) {
  const std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0.7f, 40)};
  speculation::FeatureProjection projection = {.num_outputs = kHidden,
                                               .norm = speculation::FeatureProjection::Norm::kWhole,
                                               .gains = std::vector<float>(2 * kHidden, 1),
                                               .eps = 1e-5f};
  projection.weight.assign(size_t{kHidden} * 2 * kHidden, 0);
  RecordingDrafter a({.layers = {3, 4}, .target_hidden_size = kHidden, .projection = projection});
  RecordingDrafter b({.layers = {3, 5}, .target_hidden_size = kHidden, .projection = projection});
  RefusedProposers proposers({&a, &b});
  SmallBackend* backend = nullptr;
  const testing::LoadedModel loaded = testing::LoadModel(testing::SourcePath("deploy/demo/target"),
                                                         {.wrap_backend = [&](std::unique_ptr<kernels::Backend> real) {
                                                           auto made = std::make_unique<SmallBackend>(std::move(real));
                                                           backend = made.get();
                                                           return made;
                                                         }});
  Use(*loaded.transformer);
  const kernels::MemoryNeed need =
      model::FeaturePlane::NeedOf(*a.Describe().features, *loaded.transformer, EngineOptions().num_blocks);
  const auto before_step = [&](int step) {
    if (step != 0) return;
    backend->set_num_free_bytes(2 * (need.weight_bytes + need.kv_bytes + need.pass_bytes) - need.weight_bytes / 2);
  };
  Generate(requests, proposers, {}, before_step);
  ASSERT_EQ(proposers.refused.size(), 1);
  EXPECT_EQ(proposers.refused[0].first, b.Describe().features);
  ExpectRightFeatures(a);
}

}  // namespace
}  // namespace foretoken::verifier
