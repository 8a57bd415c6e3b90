// SPDX-License-Identifier: Apache-2.0
// The engine's own time, and how well it shields streams from a long prompt.
//
//   engine_bench [--short] [--json] [--threads=N]
//
// Host work: 16 sequences of the demo model, each offered trees of 16 nodes of which half are right; the time from a
// step's result to the next launch, waiting for proposals apart, on one thread. Admission: a model
// of random weights of the shape of Llama 3.2 1B, 4 streams with 1,024 tokens of context; the time between their tokens
// before and while a prompt of 4,096 tokens is computed. --short: 4 layers, 256 and 512 tokens. The draw is over the
// demo tokenizer's vocabulary.
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/check.h"
#include "tests/bench/findings.h"
#include "tests/bench/host_work.h"
#include "tests/bench/scripted_proposer.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/loaded_model.h"
#include "tests/testing/random_model.h"
#include "tests/testing/random_values.h"
#include "verifier_service/engine.h"

ABSL_FLAG(bool, short, false, "a smaller model and shorter prompts");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");

namespace foretoken::bench {
namespace {

using testing::LoadedModel;
using verifier::Engine;
using verifier::SampleOutput;

const std::string kDemoModel = FORETOKEN_SOURCE_DIR "/deploy/demo/target";

verifier::GenerationRequest Request(uint64_t ticket, std::vector<int32_t> prompt, int32_t max_tokens) {
  verifier::GenerationRequest request{
      .ticket = ticket, .request_id = absl::StrCat(ticket), .prompt = std::move(prompt)};
  request.sampling.seed = ticket;
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true};
  return request;
}

std::vector<int32_t> RandomPrompt(uint32_t seed, int32_t num_tokens) {
  testing::RandomValues random(seed);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < num_tokens; ++i) prompt.push_back(random.Below(4000));
  return prompt;
}

void Submit(Engine& engine, verifier::GenerationRequest request) {
  FT_CHECK(engine.Submit(engine.Reserve().value(), std::move(request)).ok());
}

// An engine that is driven step by step.
struct Bench {
  Bench(LoadedModel loaded_model, int num_threads, verifier::ProposerClient& proposers)
      : loaded(std::move(loaded_model)),
        tokenizer(tokenizer::Tokenizer::Load(kDemoModel).value()),
        engine({.max_step_rows = loaded.transformer->options().max_rows},
               {.transformer = loaded.transformer.get(),
                .kv = &loaded.kv,
                .tokenizer = &tokenizer,
                .proposers = &proposers,
                .publish = [this](std::vector<SampleOutput> outputs) { on_outputs(std::move(outputs)); },
                .now = [num_threads] { return absl::UnixEpoch() + absl::Seconds(Now(num_threads)); }}) {}

  LoadedModel loaded;
  tokenizer::Tokenizer tokenizer;
  std::function<void(std::vector<SampleOutput>)> on_outputs = [](std::vector<SampleOutput>) {};
  Engine engine;
};

// --- host work -------------------------------------------------------------------------------------------------------

void AddHostWork(Findings* findings) {
  LoadedModel loaded = testing::LoadModel(kDemoModel, {.num_threads = 1, .num_blocks = 2048});
  const auto tokenizer = tokenizer::Tokenizer::Load(kDemoModel).value();
  const HostWork work = MeasureHostWork(*loaded.transformer, loaded.kv, tokenizer);
  findings->Add({.what = "host work at 16 sequences, draw excluded",
                 .value = Median(work.step_us),
                 .unit = "us a step",
                 .at_most = 50});
  findings->Add({.what = "  slowest tenth", .value = Quantile(work.step_us, 0.9), .unit = "us a step"});
  findings->Add({.what = "  rows", .value = work.num_rows, .unit = "a step"});
  findings->Add({.what = "  tokens of a sequence", .value = work.num_tokens, .unit = "a step"});
}

// --- admission of a long prompt --------------------------------------------------------------------------------------

struct AdmissionSizes {
  int64_t num_layers = 16;
  int32_t num_stream_tokens = 1024;  // context of each stream
  int32_t num_prompt_tokens = 4096;
  size_t num_tokens_before = 40;
};

constexpr uint64_t kNumStreams = 4;
constexpr uint64_t kLongPrompt = 100;  // its ticket

LoadedModel MakeOneBillion(const AdmissionSizes& sizes, int num_threads) {
  const model::ModelConfig config = testing::OneBillionShape(sizes.num_layers);
  LoadedModel loaded;
  loaded.ranks = testing::MakeRanks({.num_threads = num_threads});
  loaded.transformer = std::make_unique<model::Transformer>(
      config, testing::RandomWeights(config, loaded.backend()), loaded.backend(),
      model::TransformerOptions{.max_rows = 512, .max_logit_rows = 512, .max_positions = 5120});
  loaded.kv = loaded.transformer->MakeKvCache(/*num_blocks=*/1024);
  return loaded;
}

// Seconds between the tokens of the streams.
struct Gaps {
  std::vector<double> before;  // the long prompt
  std::vector<double> during;
};

Gaps MeasureGaps(const AdmissionSizes& sizes, int num_threads) {
  Gaps gaps;
  std::map<uint64_t, double> last_token;  // by ticket
  bool is_prompt_done = false;
  std::vector<double>* current = nullptr;
  ScriptedProposer silent(/*chain_len=*/0);
  Bench bench(MakeOneBillion(sizes, num_threads), num_threads, silent);  // ends before what it tells of its end
  bench.on_outputs = [&](std::vector<SampleOutput> outputs) {
    const double now = Now(num_threads);
    for (const SampleOutput& output : outputs) {
      if (output.ticket == kLongPrompt) {
        is_prompt_done = true;
        continue;
      }
      const auto last = last_token.find(output.ticket);
      if (current != nullptr && last != last_token.end()) current->push_back(now - last->second);
      last_token[output.ticket] = now;
    }
  };
  for (uint64_t i = 0; i < kNumStreams; ++i) {
    Submit(bench.engine, Request(i, RandomPrompt(static_cast<uint32_t>(i), sizes.num_stream_tokens), 2048));
  }
  while (last_token.size() < kNumStreams) bench.engine.Step();
  current = &gaps.before;
  while (gaps.before.size() < kNumStreams * sizes.num_tokens_before) bench.engine.Step();
  Submit(bench.engine, Request(kLongPrompt, RandomPrompt(kLongPrompt, sizes.num_prompt_tokens), 1));
  current = &gaps.during;
  while (!is_prompt_done) bench.engine.Step();
  return gaps;
}

void MeasureAdmission(const AdmissionSizes& sizes, int num_threads, Findings* findings) {
  const Gaps gaps = MeasureGaps(sizes, num_threads);
  findings->Add({.what = "between tokens of 4 streams", .value = 1e3 * Median(gaps.before), .unit = "ms"});
  findings->Add({.what = "  tokens of each while the long prompt is admitted",
                 .value = static_cast<double>(gaps.during.size()) / kNumStreams,
                 .unit = "tokens"});
  findings->Add({.what = "  growth of the median meanwhile",
                 .value = Median(gaps.during) / Median(gaps.before),
                 .unit = "x",
                 .at_most = 1.5});
  findings->Add({.what = "  growth of the slowest tenth meanwhile",
                 .value = Quantile(gaps.during, 0.9) / Quantile(gaps.before, 0.9),
                 .unit = "x",
                 .at_most = 1.5});
}

int Main() {
  Findings findings;
  AddHostWork(&findings);
  AdmissionSizes sizes;
  if (absl::GetFlag(FLAGS_short)) {
    sizes = {.num_layers = 4, .num_stream_tokens = 256, .num_prompt_tokens = 512, .num_tokens_before = 15};
  }
  MeasureAdmission(sizes, NumThreads(absl::GetFlag(FLAGS_threads)), &findings);
  findings.Print(absl::GetFlag(FLAGS_json));
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
