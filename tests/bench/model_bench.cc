// SPDX-License-Identifier: Apache-2.0
// Compares steps of a model of random weights, in the shape of Llama 3.2 1B, with the best that the machine can do.
//
//   model_bench [--short] [--json] [--threads=N] [--isa=NAME] [--weights=int8|int4 [--group_size=N] [--int8_rows]]
//
// A step is the forward pass of a root and its tree at 1,024 tokens of context, with head and draw. Every round
// measures one read of a buffer as large as the weights and one step of each size, in turn. Figures are medians over
// the rounds, and ratios are medians of the rounds' ratios. Only the memory rate is that of the fastest rounds, because
// other virtual machines take bandwidth away for seconds. The matrix rate is the rate of the isa's multiply instruction
// in registers. On one thread the time is that thread's own time, so a busy machine does less harm. --short: 4 of the
// 16 layers, fewer rounds.
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/model/transformer.h"
#include "kernels/check.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/findings.h"
#include "tests/bench/machine_rates.h"
#include "tests/bench/profiled_backend.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/models/random_model.h"

ABSL_FLAG(bool, short, false, "a smaller model and fewer rounds");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");
ABSL_FLAG(std::string, isa, "auto",
          "amx, avx512_bf16, avx512_vnni, avx512, avx_vnni, avx2, baseline, or auto: the best of this machine");

ABSL_FLAG(std::string, weights, "bf16", "bf16, int8 or int4: how all matrices are kept");
ABSL_FLAG(int32_t, group_size, 32, "inputs that share a scale, for int8 and int4");
ABSL_FLAG(int32_t, experts, 0, "experts in each layer, of which a token takes 8, as wide as the dense MLP; 0: dense");
ABSL_FLAG(bool, int8_rows, false, "what matrices of integers multiply is rounded to int8");

namespace foretoken::bench {
namespace {

using kernels::Quantization;
using kernels::WeightQuantization;
using kernels::cpu::Isa;
using kernels::cpu::ThreadPool;

constexpr int32_t kContextTokens = 1024;
constexpr int32_t kPromptRows = 512;
constexpr int32_t kMaxTreeRows = 32;

// One step: the tokens to compute and the rows to draw.
struct StepInput {
  model::ForwardBatch forward;
  std::vector<int32_t> token_ids;  // of the tree's nodes, root first
  std::vector<int32_t> parents;
};

std::vector<int32_t> BlockTable() {
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i < kContextTokens / kernels::kKvBlockSize; ++i) blocks.push_back(i);
  return blocks;
}

// Rows [begin, end) of the context. The bench draws the token of the last row.
StepInput PromptChunk(int32_t begin, int32_t end) {
  std::vector<int32_t> chain;
  for (int32_t position = begin; position < end; ++position) chain.push_back(position * 17 % 1000);
  StepInput step{.token_ids = {chain.back()}, .parents = {-1}};
  const int32_t root =
      AppendSegment({.block_table = BlockTable(), .first_position = begin, .chain = chain}, &step.forward);
  step.forward.logit_rows = {root};
  return step;
}

// The root at the context's end and a tree of chains and branches below it.
StepInput TreeStep(int32_t num_rows) {
  StepInput step{.token_ids = {7}, .parents = {-1}};
  std::vector<int32_t> parents, slots;  // of the nodes below the root
  for (int32_t node = 0; node + 1 < num_rows; ++node) {
    parents.push_back(node % 4 == 0 ? node / 2 - 1 : node - 1);
    slots.push_back(kContextTokens + node);
    step.token_ids.push_back(100 + node);
    step.parents.push_back(parents.back() + 1);
  }
  const std::vector<int32_t> chain = {step.token_ids[0]};
  const int32_t root = AppendSegment({.block_table = BlockTable(),
                                      .first_position = kContextTokens - 1,
                                      .chain = chain,
                                      .tree_token_ids = std::span(step.token_ids).subspan(1),
                                      .tree_parents = parents,
                                      .tree_slots = slots},
                                     &step.forward);
  for (int32_t i = 0; i < num_rows; ++i) step.forward.logit_rows.push_back(root + i);
  return step;
}

class Model {
 public:
  Model(Isa isa, int num_threads, const model::ModelConfig& config, const Quantization& quantization)
      : num_threads_(num_threads),
        backend_(std::make_unique<kernels::cpu::CpuBackend>(
                     *kernels::cpu::IsaPin::Make(isa), num_threads,
                     kernels::cpu::CpuBackendOptions{.weights = quantization, .head = quantization}),
                 num_threads),
        config_(config) {
    model::ModelWeights weights = testing::RandomWeights(config, backend_);
    matrix_bytes_ = testing::MatrixBytes(config, weights);
    transformer_ = std::make_unique<model::Transformer>(
        config, std::move(weights), backend_,
        model::TransformerOptions{
            .max_rows = kPromptRows, .max_logit_rows = kMaxTreeRows, .max_positions = kContextTokens + kMaxTreeRows});
    kv_ = transformer_->MakeKvCache((kContextTokens + kMaxTreeRows) / kernels::kKvBlockSize);
    for (int32_t begin = 0; begin < kContextTokens; begin += kPromptRows) {
      StepSeconds(PromptChunk(begin, begin + kPromptRows));
    }
    backend_.TakeMilliseconds();
  }

  double StepSeconds(const StepInput& step) {
    const kernels::TreeToAccept tree = {
        .token_ids = step.token_ids, .parents = step.parents, .context_len = kContextTokens, .sampling = {.seed = 5}};
    kernels::AcceptedPath path;
    const double seconds = Seconds(num_threads_, [&] {
      const kernels::ConstTensorView logits = transformer_->Forward(step.forward, kv_);
      backend_.AcceptTrees({.logits = logits,
                            .num_tokens = static_cast<int32_t>(config_.vocab_size),
                            .trees = std::span(&tree, 1),
                            .paths = std::span(&path, 1)});
    });
    FT_CHECK(path.status == kernels::DrawStatus::kOk);
    return seconds;
  }

  size_t matrix_bytes() const { return matrix_bytes_; }
  const model::ModelConfig& config() const { return config_; }
  Quantization quantization() const { return backend_.weight_quantization(); }
  ProfiledBackend& backend() { return backend_; }

 private:
  int num_threads_;
  ProfiledBackend backend_;
  model::ModelConfig config_;
  std::unique_ptr<model::Transformer> transformer_;
  model::KvCache kv_;
  size_t matrix_bytes_ = 0;
};

// Seconds, one value per round.
struct StepTimes {
  StepInput input;
  int32_t num_rows = 0;
  std::vector<double> seconds;
  std::map<std::string, std::vector<double>> op_ms;
};

void Measure(Model& model, StepTimes& step) {
  step.seconds.push_back(model.StepSeconds(step.input));
  for (const auto& [op, ms] : model.backend().TakeMilliseconds()) step.op_ms[op].push_back(ms);
}

struct Measured {
  std::vector<StepTimes> trees;
  StepTimes prompt;
  std::vector<double> read_seconds;          // the read of a buffer as large as the weights
  std::vector<double> seconds_per_multiply;  // in registers
};

Measured MeasureAll(Isa isa, int num_threads, int num_rounds, Model& model) {
  Measured measured;
  for (const int32_t num_rows : {1, 2, 4, 8, 16, 32}) {
    measured.trees.push_back({.input = TreeStep(num_rows), .num_rows = num_rows});
  }
  measured.prompt = {.input = PromptChunk(kContextTokens - kPromptRows, kContextTokens), .num_rows = kPromptRows};

  ThreadPool pool(num_threads);
  const kernels::cpu::Pages pages(model.matrix_bytes());
  const std::span words(static_cast<uint64_t*>(pages.data()), pages.num_bytes() / sizeof(uint64_t));
  for (uint64_t& word : words) word = 1;
  for (int round = 0; round < num_rounds; ++round) {
    uint64_t sum = 0;
    measured.read_seconds.push_back(Seconds(num_threads, [&] { sum = ReadAll(words, pool); }));
    FT_CHECK(sum == words.size());
    for (StepTimes& step : measured.trees) Measure(model, step);
    double num_multiplies = 0;
    const double seconds = Seconds(num_threads, [&] { num_multiplies = MultiplyInRegisters(isa, pool); });
    measured.seconds_per_multiply.push_back(seconds / num_multiplies);
    Measure(model, measured.prompt);
  }
  return measured;
}

// What a step of so many rows may cost of one row's time, where a bound is promised.
std::optional<double> MaxStepRatio(Isa isa, const Quantization& quantization, int32_t num_rows) {
  if (quantization.weights == WeightQuantization::kNone) {
    if (isa == Isa::kAmx && num_rows == 16) return 1.15;
    if (isa == Isa::kAmx && num_rows == 32) return 1.35;
    if (isa == Isa::kAvx512Bf16 && num_rows == 8) return 1.9;
    return std::nullopt;
  }
  if (!kernels::cpu::HasAvx512Integers(isa, quantization.int8_rows)) return std::nullopt;
  if (quantization.int8_rows && num_rows == 8) return 1.3;
  if (quantization.int8_rows && num_rows == 16) return 1.9;
  if (quantization.weights == WeightQuantization::kInt4 && !quantization.int8_rows && num_rows == 4) return 1.6;
  if (quantization.weights == WeightQuantization::kInt4 && !quantization.int8_rows && num_rows == 8) return 2.4;
  return std::nullopt;
}

// Percent of a plain read's bandwidth.
double MinReadRate(const Quantization& quantization) {
  if (quantization.weights == WeightQuantization::kNone) return 85;
  return quantization.weights == WeightQuantization::kInt4 && !quantization.int8_rows ? 75 : 90;
}

Finding StepFinding(Isa isa, const Model& model, const Measured& measured, const StepTimes& step) {
  const double multiplies =
      step.num_rows * (testing::LayerMultiplies(model.config()) + testing::HeadMultiplies(model.config()));
  const double multiply_seconds = multiplies * Median(measured.seconds_per_multiply);
  const bool is_read_bound = multiply_seconds < Median(measured.read_seconds);
  Finding finding{.what = absl::StrCat("step of ", step.num_rows, " rows (best possible: bound by ",
                                       is_read_bound ? "reading)" : "multiplying)"),
                  .value = MedianRatio(step.seconds, measured.trees[0].seconds),
                  .unit = "x of one row"};
  finding.at_most = MaxStepRatio(isa, model.quantization(), step.num_rows);
  return finding;
}

// Seconds of the matrix products of each round.
std::vector<double> ProductSeconds(const StepTimes& step) {
  std::vector<double> seconds(step.seconds.size());
  for (const auto& [op, ms] : step.op_ms) {
    if (!op.starts_with("matmul") && op != "experts") continue;
    for (size_t round = 0; round < ms.size(); ++round) seconds[round] += 1e-3 * ms[round];
  }
  return seconds;
}

Findings Judge(Isa isa, const Model& model, const Measured& measured) {
  Findings findings;
  const double gigabytes = static_cast<double>(model.matrix_bytes()) * 1e-9;
  findings.Add({.what = "read of a buffer as large as the weights",
                .value = gigabytes / Quantile(measured.read_seconds, 0),
                .unit = "GB/s"});
  findings.Add({.what = "  slowest tenth of the reads (noise)",
                .value = Quantile(measured.read_seconds, 0.9) / Quantile(measured.read_seconds, 0),
                .unit = "x of the best"});
  findings.Add({.what = "step of 1 row", .value = 1e3 * Median(measured.trees[0].seconds), .unit = "ms"});
  findings.Add({.what = "decode at batch 1: weights read",
                .value = 100 * Quantile(measured.read_seconds, 0) / Quantile(measured.trees[0].seconds, 0),
                .unit = "% of the read",
                .at_least = MinReadRate(model.quantization())});
  findings.Add({.what = "  its matrix products alone",
                .value = 100 * Quantile(measured.read_seconds, 0) / Quantile(ProductSeconds(measured.trees[0]), 0),
                .unit = "% of the read"});
  for (size_t i = 1; i < measured.trees.size(); ++i) {
    findings.Add(StepFinding(isa, model, measured, measured.trees[i]));
  }
  findings.Add(
      {.what = "matrix rate in registers", .value = 2e-9 / Median(measured.seconds_per_multiply), .unit = "GFLOP/s"});
  findings.Add(
      {.what = "prefill of 512 tokens", .value = kPromptRows / Median(measured.prompt.seconds), .unit = "tokens/s"});
  const double multiplies =
      kPromptRows * testing::LayerMultiplies(model.config()) + testing::HeadMultiplies(model.config());
  findings.Add({.what = "prefill of 512 tokens: matrix rate",
                .value = 100 * multiplies * MedianRatio(measured.seconds_per_multiply, measured.prompt.seconds),
                .unit = "% of registers'",
                .at_least = 60});
  return findings;
}

void PrintProfile(const StepTimes& step) {
  std::printf("  %3d rows %8.2f ms:", step.num_rows, 1e3 * Median(step.seconds));
  for (const auto& [op, ms] : step.op_ms) std::printf("  %s %.2f", op.c_str(), Median(ms));
  std::printf("\n");
}

// Unset: this machine has no such path.
std::optional<Isa> FindIsa(const std::string& name) {
  for (const Isa isa : kernels::cpu::SupportedIsas()) {
    if (name == "auto" || name == kernels::cpu::Name(isa)) return isa;
  }
  return std::nullopt;
}

int Main() {
  const bool is_short = absl::GetFlag(FLAGS_short);
  const int num_threads = NumThreads(absl::GetFlag(FLAGS_threads));
  const std::optional<Isa> isa = FindIsa(absl::GetFlag(FLAGS_isa));
  if (!isa.has_value()) {
    std::fprintf(stderr, "--isa: this machine has no %s\n", absl::GetFlag(FLAGS_isa).c_str());
    return 1;
  }
  const std::string& kept_as = absl::GetFlag(FLAGS_weights);
  if (kept_as != "bf16" && kept_as != "int8" && kept_as != "int4") {
    std::fprintf(stderr, "--weights: expected bf16, int8 or int4, got %s\n", kept_as.c_str());
    return 1;
  }
  if (const int32_t size = absl::GetFlag(FLAGS_group_size); size < 32 || size % 32 != 0) {
    std::fprintf(stderr, "--group_size: expected a multiple of 32, got %d\n", size);
    return 1;
  }
  const Quantization quantization(kept_as == "int8"   ? WeightQuantization::kInt8
                                  : kept_as == "int4" ? WeightQuantization::kInt4
                                                      : WeightQuantization::kNone,
                                  absl::GetFlag(FLAGS_group_size), absl::GetFlag(FLAGS_int8_rows));
  const int64_t num_layers = is_short ? 4 : 16, num_experts = absl::GetFlag(FLAGS_experts);
  const model::ModelConfig config =
      num_experts == 0 ? testing::OneBillionShape(num_layers) : testing::OneBillionActiveShape(num_layers, num_experts);
  Model model(*isa, num_threads, config, quantization);
  const Measured measured = MeasureAll(*isa, num_threads, is_short ? 5 : 9, model);
  const Findings findings = Judge(*isa, model, measured);
  const bool as_json = absl::GetFlag(FLAGS_json);
  if (!as_json) {
    std::printf("1B shape, %ld layers, %.2f GB of matrices, %s, %d threads\n", model.config().num_layers,
                1e-9 * static_cast<double>(model.matrix_bytes()), model.backend().Describe().c_str(), num_threads);
  }
  findings.Print(as_json);
  if (!as_json) {
    std::printf("  where a step's time goes, ms (matmul inputs x outputs):\n");
    PrintProfile(measured.trees[0]);
    PrintProfile(measured.trees[3]);
    PrintProfile(measured.prompt);
  }
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
