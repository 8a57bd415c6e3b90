// SPDX-License-Identifier: Apache-2.0
// Compares a GPU's work with the best that the GPU can do: a model of random weights in the shape of Llama 3.1 8B, in
// bf16 and FP8, attention over long contexts, a layer of experts, and the draw.
//
//   gpu_bench [--device=cuda] [--tokenizer=deploy/demo/target] [--layers=N] [--rounds=N] [--json]
//
// The bench measures the best values in the same run: a memory copy, one large matrix product (the faster of ours and
// cuBLASLt's, if the machine has it), and the model's products by cuBLASLt. cuBLASLt may sum in any order, so the
// difference is the cost of E1. Times are wall-clock times of work that is enqueued several times before one wait, so
// the bench measures the GPU and not the host. Every round measures everything in turn, and figures are medians over
// the rounds. "Idle between steps" is the sum of two times: the engine's work from a step's results to the next launch
// (host_work.h, measured once, after the rounds), and the additional time of a step with a wait. The bench does not use
// gRPC.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/model/memory_need.h"
#include "kernels/cuda/base/device.h"
#include "kernels/make_backend.h"
#include "tests/bench/findings.h"
#include "tests/bench/gpu_workloads.h"
#include "tests/bench/library_product.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/models/random_model.h"

ABSL_FLAG(std::string, device, "cuda", "what computes: cuda, or cpu to try the bench itself");
ABSL_FLAG(std::string, tokenizer, "deploy/demo/target", "folder of any tokenizer.json: what the engine says");
ABSL_FLAG(int, layers, 32, "of the model; fewer than 32 to try the bench itself");
ABSL_FLAG(int, rounds, 7, "measurements of everything");
ABSL_FLAG(bool, small, false, "small shapes, to try the bench itself: its numbers mean nothing");
ABSL_FLAG(bool, json, false, "print JSON");

namespace foretoken::bench {
namespace {

Sizes SizesFromFlags() {
  Sizes sizes;
  sizes.model = testing::EightBillionShape(absl::GetFlag(FLAGS_layers));
  if (!absl::GetFlag(FLAGS_small)) return sizes;
  sizes.model.hidden_size = 256;
  sizes.model.intermediate_size = 512;
  sizes.model.num_heads = 4;
  sizes.model.num_kv_heads = 2;
  sizes.model.head_dim = 64;
  sizes.model.vocab_size = 4096;
  sizes.context_tokens = 128;
  sizes.prompt_tokens = 256;
  sizes.max_rows = 128;
  sizes.attention_context = 256;
  sizes.copy_bytes = size_t{4} << 20;
  sizes.matrix_size = 256;
  sizes.expert_inputs = 128;
  sizes.expert_width = 64;
  return sizes;
}

// One value per round.
struct Measured {
  const char* largest_product = "";
  std::vector<double> copy_rate, matrix_rate, attention_rate;  // bytes, operations, bytes per second
  std::vector<double> one_row, tree, batch, launch, prefill;   // seconds
  std::vector<double> greedy, keyed, top_p;                    // seconds
  std::vector<double> expert_rate, expert_tree_rate;           // bytes per second
};

double OfBest(const std::vector<double>& rates, const std::vector<double>& best_rates) {
  return 100 * MedianRatio(rates, best_rates);
}

// A product by cuBLASLt beside the served product, if the machine has both a GPU and the library.
class LibraryBench {
 public:
  explicit LibraryBench(const kernels::cuda::ProductShape& shape) : device_(kernels::cuda::Device::Open()) {
    if (device_.device == nullptr) return;
    product_ = std::make_unique<kernels::cuda::MeasuredProduct>(
        shape, kernels::cuda::MeasureOptions{.num_repetitions = 20}, *device_.device);
  }
  const std::string& error() const { return product_ == nullptr ? device_.error : product_->error(); }
  kernels::cuda::ProductTimes Measure() { return product_->Measure(); }

 private:
  kernels::cuda::Device::Opened device_;
  std::unique_ptr<kernels::cuda::MeasuredProduct> product_;
};

// A large square product by the fastest implementation.
class LargestProduct {
 public:
  LargestProduct(Backend& backend, int64_t size) : own_(backend, size), size_(static_cast<double>(size)) {
    if (absl::GetFlag(FLAGS_device) != "cuda") return;
    auto library = std::make_unique<LibraryBench>(
        kernels::cuda::ProductShape{.num_rows = size, .num_outputs = size, .num_inputs = size});
    if (library->error().empty()) library_ = std::move(library);
  }
  double FlopsPerSecond() {
    const double own = own_.FlopsPerSecond();
    return library_ == nullptr ? own : std::max(own, 2 * size_ * size_ * size_ / library_->Measure().library_seconds);
  }
  const char* what() const {
    return library_ == nullptr ? "matrix rate of our largest product"
                               : "matrix rate of the largest product, ours or cuBLASLt's";
  }

 private:
  MatrixBench own_;
  double size_;
  std::unique_ptr<LibraryBench> library_;
};

Measured MeasureAll(Backend& backend, const Sizes& sizes, ModelBench& model) {
  CopyBench copy(backend, sizes.copy_bytes);
  LargestProduct matrix(backend, sizes.matrix_size);
  AttentionBench attention(backend, sizes);
  ExpertsBench experts(backend, sizes);
  DrawBench draw(backend, sizes);
  Measured measured;
  // The first round loads kernels and records passes.
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    if (round == 0) measured = {.largest_product = matrix.what()};
    measured.copy_rate.push_back(copy.BytesPerSecond());
    measured.one_row.push_back(model.StepSeconds(1, 0));
    measured.tree.push_back(model.StepSeconds(1, 63));
    measured.batch.push_back(model.StepSeconds(sizes.num_sequences, 0));
    measured.launch.push_back(model.LaunchSeconds());
    measured.matrix_rate.push_back(matrix.FlopsPerSecond());
    measured.prefill.push_back(model.PrefillSeconds());
    measured.attention_rate.push_back(attention.BytesPerSecond());
    measured.expert_rate.push_back(experts.TouchedBytes(1) / experts.Seconds(1));
    measured.expert_tree_rate.push_back(experts.TouchedBytes(64) / experts.Seconds(64));
    measured.greedy.push_back(draw.Seconds({.temperature = 0}));
    measured.keyed.push_back(draw.Seconds({.temperature = 0.8f, .seed = 5}));
    measured.top_p.push_back(draw.Seconds({.temperature = 0.8f, .top_p = 0.9f, .seed = 5}));
  }
  return measured;
}

void JudgeModel(const Measured& measured, const ModelBench& model, Findings& findings) {
  const double copy_rate = Median(measured.copy_rate), one_row = Median(measured.one_row);
  findings.Add({.what = "copy bandwidth, read and written", .value = 1e-9 * copy_rate, .unit = "GB/s"});
  findings.Add({.what = measured.largest_product, .value = 1e-12 * Median(measured.matrix_rate), .unit = "TFLOP/s"});
  findings.Add({.what = "decode at batch 1", .value = 1e3 * one_row, .unit = "ms"});
  findings.Add({.what = "decode at batch 1: weights read",
                .value = 100 * model.matrix_bytes() / one_row / copy_rate,
                .unit = "% of copy bandwidth",
                .at_least = 75});
  findings.Add({.what = "step of a tree of 64 rows",
                .value = MedianRatio(measured.tree, measured.one_row),
                .unit = "x of one row",
                .at_most = 1.15});
  findings.Add({.what = "prefill of 8,192 tokens: matrix rate",
                .value = 100 * model.PrefillFlops() / Median(measured.prefill) / Median(measured.matrix_rate),
                .unit = "% of the largest product's",
                .at_least = 60});
}

void JudgeIdle(const Measured& measured, const HostWork& host, Findings& findings) {
  const double launch_us = 1e6 * Median(measured.launch), host_us = Median(host.step_us);
  findings.Add(
      {.what = "idle between steps of 16 sequences", .value = host_us + launch_us, .unit = "us", .at_most = 60});
  findings.Add({.what = "  the engine's own work", .value = host_us, .unit = "us"});
  findings.Add({.what = "  launch and wait", .value = launch_us, .unit = "us"});
  findings.Add({.what = "  of a step",
                .value = 100 * 1e-6 * (host_us + launch_us) / Median(measured.batch),
                .unit = "%",
                .at_most = 3});
}

void JudgeOps(const Measured& measured, double logit_bytes, Findings& findings) {
  findings.Add({.what = "attention of trees of 16 rows, 8 sequences of 32k",
                .value = OfBest(measured.attention_rate, measured.copy_rate),
                .unit = "% of copy bandwidth",
                .at_least = 80});
  findings.Add({.what = "a layer of 128 experts, 8 of a row: weights read, one row",
                .value = OfBest(measured.expert_rate, measured.copy_rate),
                .unit = "% of copy bandwidth"});
  findings.Add({.what = "  64 rows",
                .value = OfBest(measured.expert_tree_rate, measured.copy_rate),
                .unit = "% of copy bandwidth"});
  const double read_seconds = logit_bytes / Median(measured.copy_rate);
  const auto draw = [&](const char* what, const std::vector<double>& seconds, std::optional<double> at_most) {
    findings.Add({.what = absl::StrCat("64 rows of logits, ", what),
                  .value = Median(seconds) / read_seconds,
                  .unit = "x of reading them",
                  .at_most = at_most});
  };
  draw("temperature 0", measured.greedy, 1.5);
  draw("with keyed noise", measured.keyed, 3);
  draw("with keyed noise and top_p", measured.top_p, std::nullopt);
}

// The cost of our order of sums for the model's products: without E1 a library may choose any order. The finding names
// the products that cuBLASLt serves already.
void JudgeE1Cost(const model::ModelConfig& config, Findings& findings) {
  const int64_t hidden = config.hidden_size;
  const int64_t qkv = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
  for (const int64_t num_rows : {1, 64, 512, 8192}) {
    for (const auto& [num_outputs, num_inputs] : std::vector<std::pair<int64_t, int64_t>>{
             {qkv, hidden}, {2 * config.intermediate_size, hidden}, {hidden, config.intermediate_size}}) {
      LibraryBench product({.num_rows = num_rows, .num_outputs = num_outputs, .num_inputs = num_inputs});
      if (!product.error().empty()) {
        std::fprintf(stderr, "gpu_bench: what E1 costs is not measured: %s\n", product.error().c_str());
        return;
      }
      const kernels::cuda::ProductTimes times = product.Measure();
      findings.Add({.what = absl::StrCat("product of ", num_rows, " rows, ", num_outputs, " x ", num_inputs, ", ",
                                         times.library_serves ? "cuBLASLt serves, or a part" : "ours",
                                         times.bits_are_equal ? " (its best has equal bits)" : ""),
                    .value = times.served_seconds / times.library_seconds,
                    .unit = "x of cuBLASLt's best"});
    }
  }
}

// Why the device cannot run the model; unset: it can.
std::optional<std::string> Refusal(const kernels::MadeBackend& made, const Sizes& sizes) {
  if (made.backend == nullptr) return made.error;
  return made.backend->MemoryRefusal(
      model::LargestRankNeed(sizes.model, 1, ModelBench::Options(sizes), ModelBench::NumBlocks(sizes), *made.backend));
}

// The same model with FP8 layers, after the rounds, for comparison.
void MeasureFp8(const Sizes& sizes, const Measured& bf16, Findings& findings) {
  const kernels::MadeBackend made =
      kernels::MakeBackend({.device = absl::GetFlag(FLAGS_device), .quantization = {.weights = "fp8"}});
  if (const std::optional<std::string> refusal = Refusal(made, sizes); refusal.has_value()) {
    std::fprintf(stderr, "gpu_bench: FP8 is not measured: %s\n", refusal->c_str());
    return;
  }
  ModelBench model(*made.backend, sizes);
  Measured measured;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    if (round == 0) measured = {};
    measured.one_row.push_back(model.StepSeconds(1, 0));
    measured.prefill.push_back(model.PrefillSeconds());
  }
  const double one_row = Median(measured.one_row);
  findings.Add({.what = "FP8: decode at batch 1", .value = 1e3 * one_row, .unit = "ms"});
  findings.Add({.what = "FP8: decode at batch 1: weights read",
                .value = 100 * model.matrix_bytes() / one_row / Median(bf16.copy_rate),
                .unit = "% of copy bandwidth"});
  findings.Add({.what = "FP8: decode at batch 1", .value = one_row / Median(bf16.one_row), .unit = "x of bf16's time"});
  findings.Add({.what = "FP8: prefill of 8,192 tokens",
                .value = Median(measured.prefill) / Median(bf16.prefill),
                .unit = "x of bf16's time"});
}

int Main() {
  const Sizes sizes = SizesFromFlags();
  const kernels::MadeBackend made = kernels::MakeBackend({.device = absl::GetFlag(FLAGS_device)});
  if (const std::optional<std::string> refusal = Refusal(made, sizes); refusal.has_value()) {
    std::fprintf(stderr, "gpu_bench: nothing can be measured here: %s\n", refusal->c_str());
    return 1;
  }
  const auto tokenizer = tokenizer::Tokenizer::Load(absl::GetFlag(FLAGS_tokenizer));
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "gpu_bench: --tokenizer: %s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  Backend& backend = *made.backend;
  ModelBench model(backend, sizes);
  const Measured measured = MeasureAll(backend, sizes, model);
  const bool as_json = absl::GetFlag(FLAGS_json);
  if (!as_json) {
    std::printf("8B shape, %ld layers, %.2f GB of matrices, %s\n", sizes.model.num_layers, 1e-9 * model.matrix_bytes(),
                backend.Describe().c_str());
    if (absl::GetFlag(FLAGS_device) == "cuda") {
      std::printf("many rows are multiplied by %s\n",
                  kernels::cuda::QueryDevice().has_group_mma ? "groups of warps" : "single warps");
    }
    if (!model.product_tuning().empty()) std::printf("%s\n", model.product_tuning().c_str());
  }
  Findings findings;
  JudgeModel(measured, model, findings);
  JudgeIdle(measured, model.MeasureHost(*tokenizer), findings);
  JudgeOps(measured, 4.0 * sizes.draw_rows * static_cast<double>(sizes.model.vocab_size), findings);
  if (absl::GetFlag(FLAGS_device) == "cuda") JudgeE1Cost(sizes.model, findings);
  MeasureFp8(sizes, measured, findings);
  findings.Print(as_json);
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
