// SPDX-License-Identifier: Apache-2.0
// Measures drafters that read the target's hidden states: tokens per step with the demo target, beside its draft model.
//
//   feature_bench [--short] [--json] [--threads=N] [--methods=eagle3,medusa,p_eagle]
//
// The bench generates the target's own text, greedy and at temperature 0.8, and computes the target's hidden states
// with the reference transformer. Then it replays the text. At each step the proposer gets the features of the tokens
// that the verifier has computed, its tree grows until it is complete, the best nodes on the text are accepted, and one
// more token is emitted. Late features come after the next tree instead, so every tree is provisional.
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/bench/findings.h"
#include "tests/bench/target_texts.h"
#include "tests/reference/transformer.h"
#include "tests/testing/models/demo_drafters.h"

// The prompts of deploy/demo/prompts.jsonl that the bench replays. The head guesses half of the vocabulary, and the
// first twelve prompts lead to many tokens of the other half.
constexpr int kFirstPrompt = 12, kLastPrompt = 24;

ABSL_FLAG(bool, short, false, "fewer prompts");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");
ABSL_FLAG(int, prompts, kLastPrompt, "at most");
ABSL_FLAG(int, skipped_prompts, kFirstPrompt, "the first of them that are left out");
ABSL_FLAG(int, tokens, 48, "of an output, at most");
ABSL_FLAG(int, rounds, 1, "replays of all texts; the last counts, so that a proposer can learn from the others");
ABSL_FLAG(std::string, methods, "eagle3,mlp_speculator,medusa",
          "with commas; p_eagle, dflash and dspark have no trained weights, so only their times count");

namespace foretoken::bench {
namespace {

using proposer::DraftProposer;
using proposer::Session;

const std::string kDemo = FORETOKEN_SOURCE_DIR "/deploy/demo/";

// A text, and the target's hidden states of its tokens.
struct KnownText {
  TargetText text;
  std::vector<reference::Transformer::Rows> states;  // [L + 1][T, E]
  reference::Transformer::Rows last;                 // [T, E] after the final norm
};

std::vector<KnownText> MakeTexts(float temperature) {
  const auto reference = reference::Transformer::Load(kDemo + "target", reference::Rounding::kNone).value();
  model::RunnableModel target = LoadDemoModel("target", absl::GetFlag(FLAGS_threads));
  std::vector<KnownText> texts;
  const int num_prompts = absl::GetFlag(FLAGS_short) ? kFirstPrompt + 3 : absl::GetFlag(FLAGS_prompts);
  int num_skipped = absl::GetFlag(FLAGS_skipped_prompts);
  for (TargetText& text : MakeTargetTexts(target, {.temperature = temperature,
                                                  .num_prompts = static_cast<size_t>(num_prompts),
                                                  .num_tokens = absl::GetFlag(FLAGS_tokens)})) {
    if (num_skipped-- > 0) continue;
    const std::vector<int64_t> token_ids(text.token_ids.begin(), text.token_ids.end());
    KnownText known{.text = std::move(text), .states = reference.HiddenStates(token_ids)};
    known.last = reference.FinalNorm(known.states.back());
    texts.push_back(std::move(known));
  }
  return texts;
}

double Rounded(double value) { return kernels::FloatFromBf16(kernels::Bf16FromFloat(static_cast<float>(value))); }

// The features of all tokens, [T, W] bf16, as the verifier makes them.
std::vector<uint16_t> FeaturesOf(const KnownText& text, const speculation::TargetFeatures& features) {
  std::vector<uint16_t> values;
  for (size_t row = 0; row < text.last.size(); ++row) {
    std::vector<double> x;
    for (const int32_t k : features.layers) x.insert(x.end(), text.states[k][row].begin(), text.states[k][row].end());
    if (features.layers.empty()) x = text.last[row];
    if (features.projection.has_value()) {
      std::vector<double> projected(static_cast<size_t>(features.projection->num_outputs));
      for (size_t n = 0; n < projected.size(); ++n) {
        for (size_t i = 0; i < x.size(); ++i) {
          projected[n] += kernels::FloatFromBf16(features.projection->weight[n * x.size() + i]) * Rounded(x[i]);
        }
      }
      x = std::move(projected);
    }
    for (const double value : x) values.push_back(kernels::Bf16FromFloat(static_cast<float>(value)));
  }
  return values;
}

struct Replay {
  int64_t num_steps = 0;
  int64_t num_tokens = 0;
  absl::Duration growing;  // the time of the drafter's passes
};

enum class Arrival { kInTime, kLate };

class FeatureReplay {
 public:
  FeatureReplay(DraftProposer& proposer, int32_t num_nodes, Arrival arrival)
      : proposer_(proposer), num_nodes_(num_nodes), arrival_(arrival) {}

  void Run(const KnownText& known, Replay& replay) {
    const TargetText& text = known.text;
    const speculation::TargetFeatures* const features = proposer_.Describe().features.get();
    if (features != nullptr) values_ = FeaturesOf(known, *features);
    width_ = features == nullptr ? 0 : features->width();
    num_sent_ = 0;
    const std::unique_ptr<Session> session =
        proposer_.Open({.seed = text.sampling.seed, .temperature = text.sampling.temperature});
    size_t num_known = text.num_prompt;
    session->Append(text.prompt());
    SendFeatures(*session, num_known - 1);
    for (;;) {
      session->Want({.node_budget = num_nodes_});
      const absl::Time begin = absl::Now();
      while (proposer_.Step()) continue;
      replay.growing += absl::Now() - begin;
      const std::span<const int32_t> rest = std::span(text.token_ids).subspan(num_known);
      const size_t num_emitted = NumEmitted(*session, rest);
      if (num_emitted >= rest.size()) return;
      ++replay.num_steps;
      replay.num_tokens += static_cast<int64_t>(num_emitted);
      const size_t num_before = num_known;
      num_known += num_emitted;
      if (arrival_ == Arrival::kLate) SendFeatures(*session, num_before - 1);
      session->Append(rest.first(num_emitted));
      if (arrival_ == Arrival::kInTime) SendFeatures(*session, num_known - 1);
      if (arrival_ == Arrival::kLate && session->readiness() != proposer::Readiness::kReady) {
        SendFeatures(*session, num_known - 1);
      }
    }
  }

 private:
  // The features of positions below `end` that were not sent yet.
  void SendFeatures(Session& session, size_t end) {
    if (width_ == 0 || num_sent_ >= end) return;
    session.AppendFeatures(num_sent_, std::span(values_).subspan(num_sent_ * width_, (end - num_sent_) * width_));
    num_sent_ = end;
  }
  size_t NumEmitted(Session& session, std::span<const int32_t> rest) {
    if (session.readiness() != proposer::Readiness::kReady) return 1;
    const proposer::ProposalRequest request = {.session = &session, .node_budget = num_nodes_};
    const speculation::TokenTree tree = proposer_.Propose({&request, 1}).front();
    return std::min(speculation::MatchedPath(tree, rest).size() + 1, rest.size());
  }

  DraftProposer& proposer_;
  const int32_t num_nodes_;
  const Arrival arrival_;
  std::vector<uint16_t> values_;  // [T, W]
  size_t width_ = 0;
  size_t num_sent_ = 0;  // positions
};

proposer::Drafter Load(const std::string& method) {
  const int threads = absl::GetFlag(FLAGS_threads);
  if (method == "draft") return proposer::MakeTransformerDrafter(LoadDemoModel("draft", threads));
  if (method == "p_eagle") return testing::DemoPEagle();
  if (method == "dflash") return testing::RandomDflash();
  if (method == "dspark") return testing::RandomDspark();
  if (!proposer::ReadsFeatures(method)) {
    std::cerr << "feature_bench: --methods has no method \"" << method << "\"" << std::endl;
    std::exit(1);
  }
  return proposer::LoadDrafter(
             method, {.model_directory = kDemo + method, .target_directory = kDemo + "target", .num_threads = threads})
      .value();
}

Replay ReplayAll(const std::string& method, const std::vector<KnownText>& texts, int32_t num_nodes, Arrival arrival) {
  telemetry::Metrics metrics;
  DraftProposer proposer(Load(method), {}, metrics);
  FeatureReplay runner(proposer, num_nodes, arrival);
  Replay replay;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    replay = {};
    for (const KnownText& text : texts) runner.Run(text, replay);
  }
  return replay;
}

double TokensPerStep(const Replay& replay) {
  return static_cast<double>(replay.num_tokens) / static_cast<double>(replay.num_steps);
}

// Greedy, on these texts, for trees of 8, 16 and 32 nodes: simulated in float64 by another program with best-first
// trees over the head's own probabilities.
struct Promise {
  std::string method;
  std::map<int32_t, double> tokens;  // by nodes
};
const std::vector<Promise>& Promises() {
  static const auto* const promises = new std::vector<Promise>{{"eagle3", {{8, 3.96}, {16, 4.55}, {32, 4.90}}}};
  return *promises;
}

std::optional<double> PromiseFor(const std::string& method, float temperature, int32_t num_nodes) {
  constexpr double kSlack = 0.97;
  const bool is_whole = !absl::GetFlag(FLAGS_short) && absl::GetFlag(FLAGS_prompts) == kLastPrompt &&
                        absl::GetFlag(FLAGS_skipped_prompts) == kFirstPrompt;
  for (const Promise& promise : Promises()) {
    if (is_whole && promise.method == method && temperature == 0) return kSlack * promise.tokens.at(num_nodes);
  }
  return std::nullopt;
}

void Measure(const std::string& method, float temperature, const std::vector<KnownText>& texts, Findings& findings) {
  for (const int32_t num_nodes : {8, 16, 32}) {
    const std::string name = absl::StrCat(method, temperature == 0 ? ", greedy, " : ", T=0.8, ", num_nodes, " nodes");
    const Replay replay = ReplayAll(method, texts, num_nodes, Arrival::kInTime);
    findings.Add({.what = absl::StrCat("tokens per step, ", name),
                  .value = TokensPerStep(replay),
                  .unit = "tokens",
                  .at_least = PromiseFor(method, temperature, num_nodes)});
    findings.Add({.what = "  time to grow a tree until it is complete",
                  .value = absl::ToDoubleMilliseconds(replay.growing) / static_cast<double>(replay.num_steps),
                  .unit = "ms"});
    if (method == "draft") continue;
    findings.Add({.what = "  with features that come a step late",
                  .value = TokensPerStep(ReplayAll(method, texts, num_nodes, Arrival::kLate)),
                  .unit = "tokens"});
  }
}

int Main() {
  Findings findings;
  for (const float temperature : {0.0f, 0.8f}) {
    const std::vector<KnownText> texts = MakeTexts(temperature);
    Measure("draft", temperature, texts, findings);
    for (const std::string& method : std::vector<std::string>(absl::StrSplit(absl::GetFlag(FLAGS_methods), ','))) {
      Measure(method, temperature, texts, findings);
    }
  }
  findings.Print(absl::GetFlag(FLAGS_json));
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
