// SPDX-License-Identifier: Apache-2.0
// Tenants that share an engine. If this test fails, a flood of one tenant takes the share of another, a tenant waits
// forever, or requests leave the queue without a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;

class EngineTenantsTest : public testing::EngineFixture {
 protected:
  std::unique_ptr<Engine> Make(const EngineConfig& config, int32_t num_blocks = EngineOptions().num_blocks) {
    // Every reading of the clock takes as long, so steps do not depend on the machine.
    return MakeEngine(none_, {.config = config,
                              .num_blocks = num_blocks,
                              .now = [this] { return now_ += absl::Milliseconds(1); },
                              .compute_time = [this] { return MaskClock(); }});
  }
  GenerationRequest Of(const std::string& tenant, int32_t max_tokens = 6) {
    GenerationRequest request = Request("x = 1\n", 0, max_tokens);
    request.tenant = tenant;
    request.stop.ignore_eos = true;
    tenants_[request.ticket] = tenant;
    return request;
  }
  static absl::Status Submit(Engine& engine, const GenerationRequest& request) {
    absl::StatusOr<QueuePlace> place = engine.Reserve({.deadline = request.deadline, .tenant = request.tenant});
    return place.ok() ? engine.Submit(*std::move(place), request) : place.status();
  }
  // Submits until the queue refuses.
  void Flood(Engine& engine, const std::function<GenerationRequest()>& make) {
    for (int i = 0; i < 1000; ++i) {
      if (!Submit(engine, make()).ok()) return;
    }
    FAIL() << "the queue has no bound";
  }
  void Flood(Engine& engine, const std::string& tenant, int32_t max_tokens = 6) {
    Flood(engine, [&] { return Of(tenant, max_tokens); });
  }
  std::map<std::string, int> NumCompleted() const {
    std::map<std::string, int> num;
    for (const auto& [sample, completion] : completions_) ++num[tenants_.at(sample.first)];
    return num;
  }
  std::map<std::string, int> NumShed() const {
    std::map<std::string, int> num;
    for (const auto& [sample, result] : results_) {
      if (base::ReasonOf(result.error) == "QUEUE_SHED") ++num[tenants_.at(sample.first)];
    }
    return num;
  }

  // Is read when the work on a mask begins, and when it ends.
  absl::Time MaskClock() {
    if (!std::exchange(is_at_mask_, !is_at_mask_)) return now_;
    return now_ += mask_time_;
  }

  absl::Time now_ = absl::UnixEpoch();
  bool is_at_mask_ = false;
  absl::Duration mask_time_ = absl::Milliseconds(1);  // to make a mask, or to follow a token
  InProcessProposers none_;
  std::map<Ticket, std::string> tenants_;
};

TEST_F(EngineTenantsTest, AFloodLeavesATrickleItsWholeDemand) {
  const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 16, .max_running_samples = 4});
  int num_sent = 0;
  for (int step = 0; step < 600; ++step) {
    Flood(*engine, "flood");
    if (step % 6 == 0) {  // a sixth of what the engine can serve
      ASSERT_EQ(Submit(*engine, Of("trickle")), absl::OkStatus()) << "step " << step;
      ++num_sent;
    }
    engine->Step();
    ASSERT_LE(engine->GetStats().num_queued, 16);
  }
  std::map<std::string, int> num_completed = NumCompleted();
  EXPECT_GE(num_completed["trickle"], num_sent - 3);
  EXPECT_GE(num_completed["flood"], 2 * num_completed["trickle"]) << "the rest is for the flood";
  EXPECT_EQ(NumShed()["trickle"], 0);
  EXPECT_GT(NumShed()["flood"], 0);
}

// Its tenant always has the most blocks, so it is the one that is preempted.
TEST_F(EngineTenantsTest, ALargeRequestEndsBesideAFloodOfSmallOnes) {
  const int32_t num_blocks = 16;
  for (const bool enable_prefix_cache : {false, true}) {
    const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 16,
                                                 .max_running_samples = 8,
                                                 .max_step_rows = 16,
                                                 .enable_prefix_cache = enable_prefix_cache},
                                                num_blocks);
    GenerationRequest large = Of("large", /*max_tokens=*/40);
    large.prompt.assign(size_t{num_blocks} / 2 * kernels::kKvBlockSize, large.prompt[0]);
    ASSERT_EQ(Submit(*engine, large), absl::OkStatus());
    int num_steps = 0;
    for (; num_steps < 2000 && NumCompleted()["large"] == 0; ++num_steps) {
      Flood(*engine, "flood", /*max_tokens=*/40);
      engine->Step();
    }
    EXPECT_GT(engine->GetStats().num_preemptions, 0) << "the test proves nothing";
    EXPECT_LT(num_steps, 1000) << enable_prefix_cache;
    tenants_.clear();
  }
}

TEST_F(EngineTenantsTest, WeightsDivideTheCapacity) {
  const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 32,
                                               .max_running_samples = 8,
                                               .tenants = {.weights = TenantWeights::Load("heavy=3").value()}});
  for (int step = 0; step < 600; ++step) {
    Flood(*engine, "heavy");
    Flood(*engine, "light");
    engine->Step();
  }
  std::map<std::string, int> num_completed = NumCompleted();
  EXPECT_NEAR(static_cast<double>(num_completed["heavy"]) / num_completed["light"], 3, 0.3);
}

TEST_F(EngineTenantsTest, LongOutputsOfAFloodDoNotTakeMoreThanItsShare) {
  const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 64, .max_running_samples = 8});
  for (int step = 0; step < 3000; ++step) {
    Flood(*engine, "long", /*max_tokens=*/100);
    Flood(*engine, "short", /*max_tokens=*/10);
    engine->Step();
  }
  std::map<std::string, int> num_completed = NumCompleted();
  const int num_prompt = static_cast<int>(Of("long").prompt.size());  // it is too short for the prefix cache
  const double work_of_long = (num_prompt + 100.0) * num_completed["long"];
  EXPECT_NEAR(work_of_long / ((num_prompt + 10) * num_completed["short"]), 1, 0.1);
}

// Slow masks delay the tokens of all. So the tenant whose requests need them gets fewer tokens, and the other tenant as
// many as half of the engine's time makes.
TEST_F(EngineTenantsTest, SlowMasksAreAtTheCostOfTheirTenant) {
  const GrammarVocabulary vocabulary(TokensOf(tokenizer_->vocabulary(), 4093, std::vector<int32_t>{4092}));
  const std::shared_ptr<const Grammar> letters =
      Grammar::Compile({.kind = GrammarKind::kRegex, .text = "[a-z ]{100}"}, vocabulary).value();
  const auto run = [&](bool has_formed) {
    const std::unique_ptr<Engine> engine =
        Make({.max_queued_requests = 16, .max_running_samples = 4, .max_mask_time = absl::Hours(1)});
    for (const absl::Time end = now_ + absl::Seconds(12); now_ < end;) {
      Flood(*engine, "plain");
      if (has_formed) {
        Flood(*engine, [&] {
          GenerationRequest request = Of("formed");
          request.stop.ignore_eos = false;
          request.grammar = letters;
          return request;
        });
      }
      engine->Step();
    }
    return NumCompleted();
  };
  mask_time_ = absl::Milliseconds(20);
  const int num_alone = run(/*has_formed=*/false)["plain"];
  std::map<std::string, int> num_completed = run(/*has_formed=*/true);
  EXPECT_GE(num_completed["plain"], 0.9 * num_alone / 2);
  EXPECT_LE(num_completed["plain"], 1.2 * num_alone / 2) << "the other tenant has a share, too";
  EXPECT_GT(num_completed["formed"], 0);
}

TEST_F(EngineTenantsTest, ATenantMayUseAllWhileItIsAlone) {
  const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 16, .max_running_samples = 4});
  Flood(*engine, "alone");
  EXPECT_EQ(engine->GetStats().num_queued, 16);
  engine->Step();
  EXPECT_EQ(engine->GetStats().num_running, 4);
  EXPECT_EQ(engine->GetStats().num_queued_tenants, 1);
  while (engine->Step()) continue;
  EXPECT_EQ(NumCompleted()["alone"], 16);
  EXPECT_EQ(engine->GetStats().num_queued_tenants, 0);
}

TEST_F(EngineTenantsTest, ACapHoldsAlthoughTheEngineHasRoom) {
  const std::unique_ptr<Engine> engine =
      Make({.max_running_samples = 8, .tenants = {.max_running_samples = 2, .max_queued_tokens = 100}});
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Submit(*engine, Of("a")), absl::OkStatus());
  ASSERT_EQ(Submit(*engine, Of("b")), absl::OkStatus());
  engine->Step();
  EXPECT_EQ(engine->GetStats().num_running, 3);
  GenerationRequest large = Of("a");
  large.prompt.assign(100, 7);
  EXPECT_EQ(base::ReasonOf(Submit(*engine, large)), "TENANT_QUEUE_FULL");
  large.tenant = "c";
  EXPECT_EQ(Submit(*engine, large), absl::OkStatus());
  while (engine->Step()) continue;
  EXPECT_EQ(completions_.size(), 7);
}

TEST_F(EngineTenantsTest, AShedRequestSaysWhenToTryAgain) {
  const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 4, .max_running_samples = 1});
  const GenerationRequest oldest = Of("flood");
  ASSERT_EQ(Submit(*engine, oldest), absl::OkStatus());
  GenerationRequest newest;
  for (int i = 0; i < 3; ++i) {
    newest = Of("flood");
    ASSERT_EQ(Submit(*engine, newest), absl::OkStatus());
  }
  ASSERT_EQ(Submit(*engine, Of("other")), absl::OkStatus());
  EXPECT_EQ(engine->GetStats().num_queued, 5) << "until the next step";
  engine->Step();
  EXPECT_LE(engine->GetStats().num_queued, 4);
  const absl::Status shed = results_[{newest.ticket, 0}].error;
  EXPECT_EQ(shed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(shed), "QUEUE_SHED");
  EXPECT_TRUE(base::IsPassing(shed));
  while (engine->Step()) continue;
  EXPECT_EQ(completions_.size(), 4);
  EXPECT_EQ((completions_.count({oldest.ticket, 0})), 1);
  EXPECT_EQ(engine->GetStats().num_queued_samples, 0);
  EXPECT_EQ(engine->GetStats().num_queued_tokens, 0);
}

TEST_F(EngineTenantsTest, ALineThatIsTooLongForItsTenantServesAnotherInTime) {
  const std::unique_ptr<Engine> engine = Make({.max_running_samples = 1});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(Submit(*engine, Of("flood", 1)), absl::OkStatus());
  for (int i = 0; i < 100; ++i) engine->Step();
  GenerationRequest late = Of("flood", 1), due = Of("due", 1);
  late.deadline = due.deadline = now_ + absl::Milliseconds(200);
  EXPECT_EQ(base::ReasonOf(Submit(*engine, late)), "DEADLINE_TOO_SHORT");
  ASSERT_EQ(Submit(*engine, due), absl::OkStatus());
  for (int i = 0; i < 3; ++i) engine->Step();
  EXPECT_EQ(NumCompleted()["due"], 1);
  while (engine->Step()) continue;
}

TEST_F(EngineTenantsTest, TenThousandInventedTenantsDoNotStarveAnother) {
  const std::unique_ptr<Engine> engine = Make({.max_queued_requests = 16, .max_running_samples = 4});
  constexpr int kNumNew = 25;  // per step, many more than the engine serves
  int num_invented = 0, num_steps = 0;
  for (; num_invented < 10'000; ++num_steps) {
    for (int i = 0; i < kNumNew; ++i) {
      (void)Submit(*engine, Of(absl::StrCat("invented ", num_invented++), 2));
      if (i == num_steps % kNumNew) (void)Submit(*engine, Of("honest", 2));
    }
    engine->Step();
    ASSERT_LE(engine->GetStats().num_queued, 16);
    ASSERT_LE(engine->GetStats().num_queued_tenants, 16);
  }
  while (engine->Step()) continue;
  const int num_all = static_cast<int>(completions_.size());
  // Each of its requests has the chance of any other request.
  EXPECT_GE(NumCompleted()["honest"], num_all / (2 * kNumNew));
  EXPECT_EQ(engine->GetStats().num_queued_tenants, 0);
}

}  // namespace
}  // namespace foretoken::verifier
