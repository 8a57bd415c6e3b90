// SPDX-License-Identifier: Apache-2.0
// Measures the engine's own time, the protection of decoding sequences from a long prompt, and the cost of that
// protection for a burst of prompts.
//
//   engine_bench [--short] [--json] [--threads=N] [--only=PART,...]
//
// host: 16 sequences of the demo model, each with trees of 16 nodes of which half are right. The time from a step's
// result to the next launch, without the wait for proposals, on one thread.
//
// queueing: the additional host time of a step at whose beginning 64 requests with prompts of 900 tokens arrive and
// wait, per request.
//
// admission: a model of random weights in the shape of Llama 3.2 1B, 4 decoding sequences, and then one, with 1,024
// tokens of context. The time between their tokens before a prompt of 4,096 tokens and while it is computed. --short: 4
// layers, 256 and 512 tokens.
//
// burst: the same model with 2 layers and a small head; burst.h describes the bursts. The draw is over the demo
// tokenizer's vocabulary.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/burst.h"
#include "tests/bench/driven_engine.h"
#include "tests/bench/findings.h"
#include "tests/bench/host_work.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/random_model.h"

ABSL_FLAG(bool, short, false, "a smaller model and shorter prompts");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");
ABSL_FLAG(std::vector<std::string>, only, {}, "parts to run, of host, queueing, admission and burst; empty: all");

namespace foretoken::bench {
namespace {

using testing::LoadedModel;
using verifier::SampleOutput;

const std::string kDemoModel = FORETOKEN_SOURCE_DIR "/deploy/demo/target";

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

// --- queueing --------------------------------------------------------------------------------------------------------

// The additional host time of a step when requests arrive and wait behind a running one, in microseconds per request.
// It includes the time to make and submit the request.
double QueueingUs(int32_t num_samples) {
  constexpr uint64_t kNumRequests = 64;
  constexpr int32_t kPromptTokens = 900;
  const LoadedModel loaded = testing::LoadModel(kDemoModel, {.num_threads = 1});
  DrivenEngine driven(*loaded.transformer, /*num_threads=*/1,
                      {.max_queued_samples = 1 << 20,
                       .max_running_samples = 1,
                       .max_step_rows = loaded.transformer->options().max_rows});
  driven.Submit(Ask(0, RandomPrompt(0, 16), 1000));
  const auto step_ms = [&] {
    const double before_ms = driven.engine.GetStats().times.host_ms;
    driven.engine.Step();
    return driven.engine.GetStats().times.host_ms - before_ms;
  };
  std::vector<double> usual_ms;
  for (int i = 0; i < 20; ++i) usual_ms.push_back(step_ms());
  for (uint64_t ticket = 1; ticket <= kNumRequests; ++ticket) {
    verifier::GenerationRequest request = Ask(ticket, RandomPrompt(static_cast<uint32_t>(ticket), kPromptTokens), 8);
    request.num_samples = num_samples;
    driven.Submit(std::move(request));
  }
  return 1e3 * (step_ms() - Median(usual_ms)) / kNumRequests;
}

void AddQueueing(Findings* findings) {
  for (const int32_t num_samples : {1, 64}) {
    std::vector<double> us;
    for (int i = 0; i < 5; ++i) us.push_back(QueueingUs(num_samples));
    findings->Add({.what = absl::StrCat("queueing a request of n = ", num_samples), .value = Median(us), .unit = "us"});
  }
}

// --- admission of a long prompt --------------------------------------------------------------------------------------

struct AdmissionSizes {
  int64_t num_layers = 16;
  int32_t num_stream_tokens = 1024;  // context of each stream
  int32_t num_prompt_tokens = 4096;
  size_t num_tokens_before = 40;
};

constexpr uint64_t kLongPrompt = 100;  // its ticket

LoadedModel MakeModel(const model::ModelConfig& config, int num_threads) {
  LoadedModel loaded;
  loaded.ranks = testing::MakeRanks({.num_threads = num_threads});
  loaded.transformer = std::make_unique<model::Transformer>(
      config, testing::RandomWeights(config, loaded.backend()), loaded.backend(),
      model::TransformerOptions{.max_rows = 512, .max_logit_rows = 512, .max_positions = 5120});
  return loaded;
}

// The seconds between the tokens of the streams.
struct Gaps {
  std::vector<double> before;  // the arrival of the long prompt
  std::vector<double> during;
};

Gaps MeasureGaps(model::Transformer& transformer, uint64_t num_streams, const AdmissionSizes& sizes, int num_threads) {
  Gaps gaps;
  std::map<uint64_t, double> last_token;  // by ticket
  bool is_prompt_done = false;
  std::vector<double>* current = nullptr;
  DrivenEngine driven(transformer, num_threads, {.max_step_rows = transformer.options().max_rows});
  driven.on_outputs = [&](const std::vector<SampleOutput>& outputs) {
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
  for (uint64_t i = 0; i < num_streams; ++i) {
    driven.Submit(Ask(i, RandomPrompt(static_cast<uint32_t>(i), sizes.num_stream_tokens), 2048));
  }
  while (last_token.size() < num_streams) driven.engine.Step();
  current = &gaps.before;
  while (gaps.before.size() < num_streams * sizes.num_tokens_before) driven.engine.Step();
  driven.Submit(Ask(kLongPrompt, RandomPrompt(kLongPrompt, sizes.num_prompt_tokens), 1));
  current = &gaps.during;
  while (!is_prompt_done) driven.engine.Step();
  current = nullptr;
  driven.on_outputs = [](const auto&) {};  // the engine's end calls it, too
  return gaps;
}

void AddAdmission(model::Transformer& transformer, uint64_t num_streams, const AdmissionSizes& sizes, int num_threads,
                  Findings* findings) {
  const Gaps gaps = MeasureGaps(transformer, num_streams, sizes, num_threads);
  findings->Add({.what = absl::StrCat("between tokens of ", num_streams, num_streams == 1 ? " stream" : " streams"),
                 .value = 1e3 * Median(gaps.before),
                 .unit = "ms"});
  findings->Add({.what = "  tokens of each while the long prompt is admitted",
                 .value = static_cast<double>(gaps.during.size()) / static_cast<double>(num_streams),
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

bool Runs(const std::string& part) {
  const std::vector<std::string> only = absl::GetFlag(FLAGS_only);
  return only.empty() || std::ranges::find(only, part) != only.end();
}

int Main() {
  const bool is_short = absl::GetFlag(FLAGS_short);
  const int num_threads = NumThreads(absl::GetFlag(FLAGS_threads));
  for (const std::string& part : absl::GetFlag(FLAGS_only)) {
    if (part == "host" || part == "queueing" || part == "admission" || part == "burst") continue;
    std::fprintf(stderr, "--only: expected host, queueing, admission or burst, got %s\n", part.c_str());
    return 1;
  }
  Findings findings;
  if (!absl::GetFlag(FLAGS_json)) findings.PrintAsFound();
  if (Runs("host")) AddHostWork(&findings);
  if (Runs("queueing")) AddQueueing(&findings);
  if (Runs("admission")) {
    AdmissionSizes sizes;
    if (is_short) {
      sizes = {.num_layers = 4, .num_stream_tokens = 256, .num_prompt_tokens = 512, .num_tokens_before = 15};
    }
    const LoadedModel loaded = MakeModel(testing::OneBillionShape(sizes.num_layers), num_threads);
    for (const uint64_t num_streams : {4, 1}) {
      AddAdmission(*loaded.transformer, num_streams, sizes, num_threads, &findings);
    }
  }
  if (Runs("burst")) {
    model::ModelConfig config = testing::OneBillionShape(/*num_layers=*/2);
    config.vocab_size = 4096;  // about the size of the demo tokenizer's vocabulary
    const LoadedModel loaded = MakeModel(config, num_threads);
    MeasureBursts(*loaded.transformer, num_threads,
                  is_short ? BurstSizes{.num_rounds = 3, .num_tokens = 32} : BurstSizes{}, &findings);
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
