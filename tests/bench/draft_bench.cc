// SPDX-License-Identifier: Apache-2.0
// Measures the draft proposer with the demo pair over its prompts: accepted tokens, cost and answer times.
//
//   draft_bench [--short] [--json] [--threads=N]
//
// First the bench generates the target's own text, greedy and at temperature 0.8. Then it replays the text. At each
// step the proposer gives a tree, the nodes on the text are accepted, and one more token is emitted. A real verifier
// does the same, because its tokens do not depend on the trees.
//
// In the first part the tree grows between steps until it is complete, as with a verifier of long steps. A hit is an
// advance that the proposer answers from the existing tree. A miss has one of two causes: the token was not among a
// node's children, or its node was not expanded. Opening a session counts as neither.
//
// The second part has verifiers of shorter and longer steps, in simulated time. A pass takes --pass_us and --row_us for
// each of its rows, growing stops at the end of the step, and the verifier waits for an answer at most a quarter of a
// step. The bench compares the tokens per time of three answer times: the proposer's own, at once, and with the
// complete tree. --short: 6 prompts, 48 tokens each.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "proposer_service/draft/draft_proposer.h"
#include "tests/bench/findings.h"
#include "tests/bench/stopwatch.h"
#include "tests/bench/target_texts.h"

using foretoken::proposer::DraftForestOptions;

ABSL_FLAG(bool, short, false, "fewer prompts, shorter texts");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, prompts, 32, "at most");
ABSL_FLAG(int, tokens, 192, "of an output, at most");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");
ABSL_FLAG(int, children, DraftForestOptions().num_children, "of an expanded node");
ABSL_FLAG(int, max_children, DraftForestOptions().max_children, "of a likely node");
ABSL_FLAG(int, tree_rows, DraftForestOptions().max_tree_rows, "nodes expanded in a pass");
ABSL_FLAG(int, grown_nodes, DraftForestOptions().max_grown_nodes, "nodes expanded of a tree");
ABSL_FLAG(double, min_path_chance, DraftForestOptions().min_path_chance, "less likely nodes are not expanded");
ABSL_FLAG(int, pass_us, 250, "of a pass in simulated time");
ABSL_FLAG(int, row_us, 15, "of each of its rows");

namespace foretoken::bench {
namespace {

using proposer::DraftForest;
using proposer::DraftProposer;
using proposer::GrowingTree;
using proposer::Session;
using speculation::TokenTree;

DraftForestOptions Options() {
  return {.num_children = absl::GetFlag(FLAGS_children),
          .max_children = absl::GetFlag(FLAGS_max_children),
          .max_tree_rows = absl::GetFlag(FLAGS_tree_rows),
          .max_grown_nodes = absl::GetFlag(FLAGS_grown_nodes),
          .min_path_chance = static_cast<float>(absl::GetFlag(FLAGS_min_path_chance))};
}

std::string RegimeOf(float temperature) { return temperature == 0 ? "greedy" : absl::StrCat("T=", temperature); }

// The node budgets of a verifier.
struct Verifier {
  int32_t num_asked = 0;     // nodes in a request
  int32_t num_verified = 0;  // the best of them
};

// The tree that a verifier verifies for a session; empty while the session is not ready.
TokenTree TreeFor(const Verifier& verifier, DraftProposer& proposer, Session& session) {
  if (session.readiness() != proposer::Readiness::kReady) return {.position = session.position()};
  const proposer::ProposalRequest request = {.session = &session, .node_budget = verifier.num_asked};
  TokenTree tree = proposer.Propose({&request, 1}).front();
  for (speculation::TreeNode& node : tree.nodes) node.proposers = 1;
  return speculation::BestNodes(tree, verifier.num_verified);
}

size_t NumEmitted(const TokenTree& tree, std::span<const int32_t> text) {
  return std::min(speculation::MatchedPath(tree, text).size() + 1, text.size());
}

struct Replay {
  int64_t num_steps = 0;
  int64_t num_tokens = 0;
  int64_t num_unknown = 0;     // the next token is not among the children of the path's last node
  int64_t num_unexpanded = 0;  // the path's last node is not expanded

  double PerStep(double value) const { return value / static_cast<double>(num_steps); }
};

void CountMiss(const GrowingTree& tree, std::span<const int32_t> committed, Replay& replay) {
  int32_t at = GrowingTree::kRoot;
  for (const int32_t token_id : committed) {
    const std::span<const GrowingTree::Node> children = tree.Children(at);
    const auto child = std::ranges::find(children, token_id, [](const auto& node) { return node.child.token_id; });
    if (child == children.end()) {
      ++replay.num_unknown;
      return;
    }
    at = tree.node(at).first_child + static_cast<int32_t>(child - children.begin());
  }
  if (!tree.node(at).is_expanded) ++replay.num_unexpanded;
}

void ReplayGrown(DraftProposer& proposer, const TargetText& text, Verifier verifier, Replay& replay) {
  const std::unique_ptr<Session> session =
      proposer.Open({.seed = text.sampling.seed, .temperature = text.sampling.temperature});
  session->Append(text.prompt());
  for (std::span<const int32_t> rest = std::span(text.token_ids).subspan(text.num_prompt); !rest.empty();) {
    session->Want({.node_budget = verifier.num_asked});
    while (proposer.Step()) continue;
    const size_t num_emitted = NumEmitted(TreeFor(verifier, proposer, *session), rest);
    // The last token of the text has no token after it to guess.
    if (num_emitted == rest.size()) break;
    ++replay.num_steps;
    replay.num_tokens += static_cast<int64_t>(num_emitted);
    CountMiss(proposer.forest().sessions().begin()->second->tree, rest.first(num_emitted), replay);
    session->Append(rest.first(num_emitted));
    rest = rest.subspan(num_emitted);
  }
}

struct Promise {
  Verifier verifier;
  double greedy;
  double drawn;
};
// Simulated with this pair in float64, with the draft alone and best-first trees: deploy/demo/README.md. The last
// verifier asks for more nodes than it has rows for.
constexpr Promise kPromises[] = {
    {{4, 4}, 2.31, 1.94}, {{8, 8}, 2.77, 2.17}, {{16, 16}, 3.24, 2.40}, {{32, 32}, 3.59, 2.65}, {{32, 8}, 2.77, 2.17}};
constexpr double kHits = 80;

void MeasureSight(const std::vector<TargetText>& texts, float temperature, Findings& findings) {
  for (const Promise& promise : kPromises) {
    telemetry::Metrics metrics;
    DraftProposer proposer(LoadDemoModel("draft", absl::GetFlag(FLAGS_threads)), Options(), metrics);
    proposer::DraftMetrics counters(metrics);
    Replay replay;
    const double seconds = Seconds(NumThreads(absl::GetFlag(FLAGS_threads)), [&] {
      for (const TargetText& text : texts) ReplayGrown(proposer, text, promise.verifier, replay);
    });
    findings.Add({.what = absl::StrCat("tokens per step, ", RegimeOf(temperature), ", ", promise.verifier.num_verified,
                                       " nodes of ", promise.verifier.num_asked),
                  .value = replay.PerStep(static_cast<double>(replay.num_tokens)),
                  .unit = "tokens",
                  .at_least = temperature == 0 ? promise.greedy : promise.drawn});
    findings.Add({.what = "  advances answered from the grown tree",
                  .value = 100 * replay.PerStep(counters.hits.Value()),
                  .unit = "%",
                  .at_least = kHits});
    findings.Add({.what = "  misses: not among the children",
                  .value = 100 * replay.PerStep(static_cast<double>(replay.num_unknown)),
                  .unit = "%"});
    findings.Add({.what = "  misses: not expanded",
                  .value = 100 * replay.PerStep(static_cast<double>(replay.num_unexpanded)),
                  .unit = "%"});
    findings.Add({.what = "  passes", .value = replay.PerStep(counters.passes.Value()), .unit = "a step"});
    findings.Add({.what = "  rows", .value = replay.PerStep(counters.tree_rows.Value()), .unit = "a step"});
    findings.Add({.what = "  growing", .value = replay.PerStep(1e3 * seconds), .unit = "ms a step"});
  }
}

// The time at which an answer goes out.
enum class Timing { kAtOnce, kOwn, kGrown };

// A clock that advances with each pass.
class SimulatedTime {
 public:
  absl::Time Now() const {
    if (forest_ == nullptr) return absl::UnixEpoch();
    const DraftForest::Counters& work = forest_->counters();
    return absl::UnixEpoch() + idle_ +
           static_cast<double>(work.num_passes) * absl::Microseconds(absl::GetFlag(FLAGS_pass_us)) +
           static_cast<double>(work.num_context_rows + work.num_tree_rows) *
               absl::Microseconds(absl::GetFlag(FLAGS_row_us));
  }
  void Watch(const DraftForest& forest) { forest_ = &forest; }
  void IdleUntil(absl::Time time) { idle_ += std::max(time - Now(), absl::ZeroDuration()); }

 private:
  const DraftForest* forest_ = nullptr;
  absl::Duration idle_;
};

class TimedReplay {
 public:
  TimedReplay(absl::Duration step, Timing timing)
      : step_(step),
        timing_(timing),
        proposer_(LoadDemoModel("draft", absl::GetFlag(FLAGS_threads)), Options(), metrics_,
                  [this] { return time_.Now(); }) {
    time_.Watch(proposer_.forest());
  }

  void Run(const TargetText& text) {
    const std::unique_ptr<Session> session =
        proposer_.Open({.seed = text.sampling.seed, .temperature = text.sampling.temperature});
    session->Append(text.prompt());
    session->Want({.node_budget = kVerifier.num_asked});
    while (session->readiness() != proposer::Readiness::kReady)
      proposer_.Step();  // computes the prompt before the measurement
    for (std::span<const int32_t> rest = std::span(text.token_ids).subspan(text.num_prompt); !rest.empty();) {
      session->Want({.node_budget = kVerifier.num_asked,
                     .until_next_step = MaxWait(),
                     .step = timing_ == Timing::kOwn ? step_ : absl::ZeroDuration()});
      AwaitAnswer(*session);
      const size_t num_emitted = NumEmitted(TreeFor(kVerifier, proposer_, *session), rest);
      if (num_emitted == rest.size()) break;
      ++num_steps_;
      num_tokens_ += static_cast<int64_t>(num_emitted);
      const absl::Time end = time_.Now() + step_;
      while (time_.Now() + WholePass() <= end && proposer_.Step()) continue;
      time_.IdleUntil(end);
      session->Append(rest.first(num_emitted));
      rest = rest.subspan(num_emitted);
    }
  }

  double TokensPerMs() const {
    return static_cast<double>(num_tokens_) / absl::ToDoubleMilliseconds(step_ * num_steps_ + waited_);
  }
  double TokensPerStep() const { return static_cast<double>(num_tokens_) / static_cast<double>(num_steps_); }
  double WaitedMs() const { return absl::ToDoubleMilliseconds(waited_) / static_cast<double>(num_steps_); }

 private:
  static constexpr Verifier kVerifier = {.num_asked = 16, .num_verified = 16};

  absl::Duration MaxWait() const { return timing_ == Timing::kGrown ? absl::InfiniteDuration() : step_ / 4; }
  static absl::Duration WholePass() {
    return absl::Microseconds(absl::GetFlag(FLAGS_pass_us) +
                              absl::GetFlag(FLAGS_row_us) * absl::GetFlag(FLAGS_tree_rows));
  }
  void AwaitAnswer(Session& session) {
    const absl::Time begin = time_.Now();
    const auto is_answered = [&] {
      return timing_ != Timing::kGrown && session.readiness() == proposer::Readiness::kReady;
    };
    while (!is_answered() && time_.Now() - begin < MaxWait() && proposer_.Step()) continue;
    waited_ += time_.Now() - begin;
  }

  const absl::Duration step_;
  const Timing timing_;
  telemetry::Metrics metrics_;
  SimulatedTime time_;
  DraftProposer proposer_;
  int64_t num_steps_ = 0;
  int64_t num_tokens_ = 0;
  absl::Duration waited_;
};

void MeasureTiming(const std::vector<TargetText>& texts, float temperature, Findings& findings) {
  for (const int step_ms : {5, 20, 80}) {
    const std::string name = absl::StrCat(RegimeOf(temperature), ", steps of ", step_ms, " ms");
    TimedReplay own(absl::Milliseconds(step_ms), Timing::kOwn), at_once(absl::Milliseconds(step_ms), Timing::kAtOnce),
        grown(absl::Milliseconds(step_ms), Timing::kGrown);
    for (const TargetText& text : texts) {
      for (TimedReplay* replay : {&own, &at_once, &grown}) replay->Run(text);
    }
    findings.Add({.what = absl::StrCat("tokens per time, ", name, ", to answering at once"),
                  .value = own.TokensPerMs() / at_once.TokensPerMs(),
                  .unit = "x",
                  .at_least = 0.99});
    findings.Add({.what = absl::StrCat("tokens per time, ", name, ", to answering when grown"),
                  .value = own.TokensPerMs() / grown.TokensPerMs(),
                  .unit = "x",
                  .at_least = 0.99});
    for (const auto& [timing, replay] : {std::pair("own", &own), {"at once", &at_once}, {"grown", &grown}}) {
      findings.Add(
          {.what = absl::StrCat("  ", timing, ": tokens"), .value = replay->TokensPerStep(), .unit = "a step"});
      findings.Add({.what = absl::StrCat("  ", timing, ": waits"), .value = replay->WaitedMs(), .unit = "ms a step"});
    }
  }
}

int Main() {
  Findings findings;
  model::RunnableModel target = LoadDemoModel("target", absl::GetFlag(FLAGS_threads));
  const bool is_short = absl::GetFlag(FLAGS_short);
  for (const float temperature : {0.0f, 0.8f}) {
    const std::vector<TargetText> texts =
        MakeTargetTexts(target, {.temperature = temperature,
                                 .num_prompts = static_cast<size_t>(is_short ? 6 : absl::GetFlag(FLAGS_prompts)),
                                 .num_tokens = is_short ? 48 : absl::GetFlag(FLAGS_tokens)});
    MeasureSight(texts, temperature, findings);
    MeasureTiming(texts, temperature, findings);
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
