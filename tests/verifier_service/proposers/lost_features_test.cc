// SPDX-License-Identifier: Apache-2.0
// Features that get lost between the verifier's session book and the proposer's session table. If this test fails, a
// drafter guesses for good from features with a gap, or a lost message changes a client's tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "proposer_service/session_table.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/models/demo_drafters.h"
#include "tests/testing/models/draft_model.h"
#include "verifier_service/proposers/check_proposer.h"
#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {
namespace {

// A drafter behind the book and the table of real streams. Every fifth chunk of features is lost while the test says
// so.
class LossyStream : public ProposerClient {
 public:
  explicit LossyStream(testing::DrivenDraft& drafter) : drafter_(drafter) {
    book_.AddReplica(kReplica, 0, {.features = drafter.Describe().features}, now_);
    Answer();
  }

  void set_loses(bool loses) { loses_ = loses; }
  double num_unknown() const { return metrics_.unknown.Value(); }

  const std::vector<std::string>& Names() const override { return names_; }
  void Open(const SequenceIntroduction& introduction) override { book_.Open(introduction, now_); }
  void Advance(SequenceId id, std::span<const int32_t> committed, const Ask& ask) override {
    book_.Advance(id, committed, ask);
  }
  void Close(SequenceId id) override { book_.Close(id); }
  std::vector<FeatureSource> FeatureSources() override { return {drafter_.Describe().features}; }
  std::vector<FeatureDemand> FeatureDemands() override { return book_.FeatureDemands(); }
  void GiveFeatures(const FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values) override {
    book_.GiveFeatures(demand, begin, std::move(values));
  }
  void Flush(const ComingStep& coming) override {
    now_ += kRetry.initial;
    book_.RetryRefused(now_);
    book_.MarkFlushed(kReplica, coming, now_);
    while (std::optional<v1::ProposeRequest> request = book_.NextRequest(kReplica, now_)) {
      Lose(*request);
      EXPECT_EQ(table_.Apply(*request), absl::OkStatus());
      Answer();
    }
  }
  std::vector<Proposal> TakeProposals(absl::Duration) override { return book_.TakeProposals(); }
  std::vector<ProposerStatus> GetStatus() const override { return {}; }

 private:
  void Lose(v1::ProposeRequest& request) {
    v1::ProposeRequest arrived = request;
    arrived.clear_features();
    for (const v1::FeatureChunk& chunk : request.features()) {
      if (!loses_ || ++num_chunks_ % 5 != 0) *arrived.add_features() = chunk;
    }
    request = std::move(arrived);
  }
  // The drafter grows its trees while the table asks for them, so what it announces comes in the next answer.
  void Answer() {
    do {
      for (const uint64_t session_id : std::exchange(announced_, {})) table_.Announce(session_id);
      v1::ProposeResponse response;
      if (table_.TakeResponse(response)) {
        book_.TakeAnswer(kReplica, CheckAnswer(response, {.num_tokens = 4096, .proposers = 1}), now_);
      }
    } while (!announced_.empty());
  }

  static constexpr ReplicaId kReplica = 10;
  static constexpr Backoff kRetry = {.initial = absl::Milliseconds(1), .max = absl::Milliseconds(2)};
  testing::DrivenDraft& drafter_;
  const std::vector<std::string> names_ = {"eagle3"};
  telemetry::Metrics registry_;
  proposer::ProposerMetrics metrics_{registry_, {}};
  proposer::SessionRoom room_{{}, metrics_.room()};
  std::vector<uint64_t> announced_;
  proposer::SessionTable table_{
      {.proposer = drafter_, .room = room_, .metrics = metrics_, .announce = [this](uint64_t session_id) {
         announced_.push_back(session_id);
       }}};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  SessionBook book_{1, kRetry, 1};
  bool loses_ = false;
  int num_chunks_ = 0;
};

using LostFeaturesTest = testing::EngineFixture;

TEST_F(LostFeaturesTest, ASessionWithAGapGetsAllFeaturesAgain) {
  constexpr int kLastLoss = 15, kRecovered = 21;  // steps
  std::vector<GenerationRequest> requests;
  for (const char* prompt : {"def add(a, b):\n", "import os\n\n\nclass Path:\n    def __init__(self", "x = 1\n"}) {
    requests.push_back(Request(prompt, 0.8f, 160));
    requests.back().speculation.mode = SpeculationMode::kAlways;
  }
  testing::InProcessProposers none;
  const testing::Results truth = Generate(requests, none);

  testing::DrivenDraft drafter(testing::DemoEagle3(), {.max_grown_nodes = 64});
  LossyStream stream(drafter);
  int num_whole = 0, num_later = 0;
  double num_unknown_at_end = 0;
  const auto before_step = [&](int step) {
    stream.set_loses(step < kLastLoss);
    if (step == kRecovered) num_unknown_at_end = stream.num_unknown();
    if (step < kRecovered) return;
    for (const auto& [id, session] : drafter.forest().sessions()) {
      const bool is_whole = session->num_skipped == 1 && session->num_provisional() == 0 && session->has_answer();
      num_whole += is_whole ? 1 : 0;
      ++num_later;
    }
  };
  EXPECT_EQ(Generate(requests, stream, {.now = testing::EvenClock()}, before_step), truth);
  EXPECT_GT(num_unknown_at_end, 3);
  EXPECT_EQ(stream.num_unknown(), num_unknown_at_end) << "after the losses";
  EXPECT_GT(num_later, 0);
  EXPECT_EQ(num_whole, num_later);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);
}

}  // namespace
}  // namespace foretoken::verifier
