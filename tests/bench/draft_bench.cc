// SPDX-License-Identifier: Apache-2.0
// How far the draft proposer sees: tokens per step by tree size, with the demo pair over its prompts.
//
//   draft_bench [--short] [--json] [--threads=N]
//
// The target's own text, greedy and at temperature 0.8, is generated first. Then it is replayed: at each step the
// proposer gives a tree, what of it lies on the text is accepted, and one more token is emitted. That is what a
// verifier does, whose tokens do not depend on the trees. Between steps growing goes on until nothing is left to grow:
// the verifier's step outlasts it. A hit is an advance that is answered from what was grown before.
// --short: 6 prompts, 48 tokens each.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"
#include "proposer_service/draft_proposer.h"
#include "tests/bench/findings.h"
#include "tests/bench/stopwatch.h"

ABSL_FLAG(bool, short, false, "fewer prompts, shorter texts");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");
ABSL_FLAG(int, children, foretoken::proposer::GardenOptions().num_children, "of an expanded node");
ABSL_FLAG(int, tree_rows, foretoken::proposer::GardenOptions().max_tree_rows, "nodes expanded in a pass");
ABSL_FLAG(int, grown_nodes, foretoken::proposer::GardenOptions().max_grown_nodes, "nodes expanded of a tree");
ABSL_FLAG(double, min_path_chance, foretoken::proposer::GardenOptions().min_path_chance,
          "less likely nodes are not expanded");

namespace foretoken::bench {
namespace {

using proposer::DraftProposer;
using proposer::Session;

const std::string kDemo = FORETOKEN_SOURCE_DIR "/deploy/demo/";
constexpr int32_t kEndOfText = 4092;

struct Text {
  std::vector<int32_t> token_ids;
  size_t num_prompt = 0;
  kernels::SamplingParams sampling;
};

model::RunnableModel Load(const std::string& directory) {
  model::OpenedModel opened =
      model::OpenModel({.directory = directory, .backend = {.num_threads = absl::GetFlag(FLAGS_threads)}}).value();
  const model::ContextPlan context = model::PlanContext({}, opened.config).value();
  return model::LoadModel(std::move(opened), {.max_rows = 1024, .context = context}, nullptr).value();
}

// Token by token, as a verifier without proposers.
void Continue(model::RunnableModel& target, int32_t max_tokens, Text& text) {
  std::vector<int32_t> blocks(target.kv.view.num_blocks);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  int32_t num_computed = 0;
  while (text.token_ids.size() < text.num_prompt + max_tokens && text.token_ids.back() != kEndOfText) {
    model::ForwardBatch batch;
    const auto chain = std::span<const int32_t>(text.token_ids).subspan(num_computed);
    const int32_t row =
        model::AppendSegment({.block_table = blocks, .first_position = num_computed, .chain = chain}, &batch);
    batch.logit_rows = {row};
    num_computed = static_cast<int32_t>(text.token_ids.size());
    const int32_t root_parent = -1;
    const kernels::TreeToAccept root = {.token_ids = chain.last(1),
                                        .parents = {&root_parent, 1},
                                        .context_len = static_cast<uint32_t>(num_computed),
                                        .sampling = text.sampling};
    kernels::AcceptedPath path;
    target.backend->AcceptTrees({.logits = target.transformer->Forward(batch, target.kv.view),
                                 .num_tokens = target.num_tokens(),
                                 .trees = {&root, 1},
                                 .paths = {&path, 1}});
    text.token_ids.push_back(path.token_ids.at(0));
  }
}

std::vector<Text> MakeTexts(model::RunnableModel& target, float temperature) {
  const size_t max_prompts = absl::GetFlag(FLAGS_short) ? 6 : 32;
  const int32_t max_tokens = absl::GetFlag(FLAGS_short) ? 48 : 192;
  std::vector<Text> texts;
  std::ifstream file(kDemo + "prompts.jsonl");
  for (std::string line; std::getline(file, line) && texts.size() < max_prompts;) {
    Text text;
    text.token_ids = target.tokenizer.Encode(nlohmann::json::parse(line)["prompt"].get<std::string>()).value();
    text.num_prompt = text.token_ids.size();
    text.sampling = {.temperature = temperature, .seed = 1000 + texts.size()};
    Continue(target, max_tokens, text);
    texts.push_back(std::move(text));
  }
  return texts;
}

struct Replay {
  int64_t num_steps = 0;
  int64_t num_tokens = 0;
  double ms = 0;
};

void GrowUntilDone(DraftProposer& proposer) {
  while (proposer.Step()) continue;
}

void ReplayText(DraftProposer& proposer, const Text& text, int32_t num_nodes, Replay* replay) {
  const std::unique_ptr<Session> session =
      proposer.Open({.seed = text.sampling.seed, .temperature = text.sampling.temperature});
  const std::span<const int32_t> token_ids = text.token_ids;
  session->Append(token_ids.first(text.num_prompt));
  session->Want({.node_budget = num_nodes});
  for (size_t at = text.num_prompt; at < token_ids.size();) {
    // An answer that is owed is given when the tree is done, so that tree sizes alone are compared.
    GrowUntilDone(proposer);
    const proposer::ProposalRequest request = {.session = session.get(), .node_budget = num_nodes};
    speculation::TokenTree tree = proposer.Propose({&request, 1}).front();
    const size_t num_accepted = speculation::MatchedPath(tree, token_ids.subspan(at)).size();
    const size_t num_emitted = std::min(num_accepted + 1, token_ids.size() - at);
    // At the end of the text there is nothing left to guess right.
    if (num_accepted + 1 <= token_ids.size() - at) {
      ++replay->num_steps;
      replay->num_tokens += static_cast<int64_t>(num_emitted);
    }
    session->Append(token_ids.subspan(at, num_emitted));
    session->Want({.node_budget = num_nodes});
    at += num_emitted;
  }
}

struct Promise {
  int32_t num_nodes;
  double greedy;
  double drawn;
};
// Simulated with this pair in float64, draft alone, best-first trees: deploy/demo/README.md.
constexpr Promise kPromises[] = {{4, 2.31, 1.94}, {8, 2.77, 2.17}, {16, 3.24, 2.40}, {32, 3.59, 2.65}};

void Measure(model::RunnableModel& target, float temperature, Findings* findings) {
  const std::vector<Text> texts = MakeTexts(target, temperature);
  const proposer::GardenOptions options = {.num_children = absl::GetFlag(FLAGS_children),
                                           .max_tree_rows = absl::GetFlag(FLAGS_tree_rows),
                                           .max_grown_nodes = absl::GetFlag(FLAGS_grown_nodes),
                                           .min_path_chance = static_cast<float>(absl::GetFlag(FLAGS_min_path_chance))};
  const std::string regime = temperature == 0 ? "greedy" : absl::StrCat("temperature ", temperature);
  for (const Promise& promise : kPromises) {
    telemetry::Metrics metrics;
    DraftProposer proposer(Load(kDemo + "draft"), options, metrics);
    proposer::DraftMetrics counters(metrics);
    Replay replay;
    const int num_threads = NumThreads(absl::GetFlag(FLAGS_threads));
    const double seconds = Seconds(num_threads, [&] {
      for (const Text& text : texts) ReplayText(proposer, text, promise.num_nodes, &replay);
    });
    const auto per_step = [&](double value) { return value / static_cast<double>(replay.num_steps); };
    findings->Add({.what = absl::StrCat("tokens per step, ", regime, ", ", promise.num_nodes, " nodes"),
                   .value = per_step(static_cast<double>(replay.num_tokens)),
                   .unit = "tokens",
                   .at_least = temperature == 0 ? promise.greedy : promise.drawn});
    findings->Add({.what = "  advances answered from the grown tree",
                   .value = 100 * counters.hits.Value() / counters.answers.Value(),
                   .unit = "%"});
    findings->Add({.what = "  forward passes a step", .value = per_step(counters.passes.Value()), .unit = "passes"});
    findings->Add({.what = "  nodes expanded a step", .value = per_step(counters.tree_rows.Value()), .unit = "rows"});
    findings->Add({.what = "  growing", .value = per_step(1e3 * seconds), .unit = "ms a step"});
    findings->Add({.what = "  tau",
                   .value = proposer.garden()
                                .chances(temperature == 0 ? proposer::Garden::Regime::kGreedy
                                                          : proposer::Garden::Regime::kKeyedDraw)
                                .tau(),
                   .unit = ""});
  }
}

int Main() {
  Findings findings;
  model::RunnableModel target = Load(kDemo + "target");
  Measure(target, 0, &findings);
  Measure(target, 0.8f, &findings);
  findings.Print(absl::GetFlag(FLAGS_json));
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
