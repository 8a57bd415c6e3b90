// SPDX-License-Identifier: Apache-2.0
// Measures the draw of the tokens of 64 rows of a 128,256-token vocabulary on one thread, for every filter and many
// kinds of rows.
//
//   draw_bench [--short] [--json] [--isa=avx2]
//
// The bench compares greedy drawing with one read of the same rows, measured in turn with it. The other figures are
// nanoseconds per vocabulary entry. Bounds hold for machines with AVX-512.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/draw/accept_trees.h"
#include "tests/bench/findings.h"
#include "tests/bench/machine_rates.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/cases/random_values.h"

ABSL_FLAG(bool, short, false, "fewer kinds of rows and fewer rounds: a few seconds");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(std::string, isa, "auto", "the instruction set: avx512, avx2 or baseline; auto: the machine's best");

namespace foretoken::bench {
namespace {

using namespace kernels;       // NOLINT
using namespace kernels::cpu;  // NOLINT
using testing::RandomValues;

constexpr int32_t kVocab = 128256, kRows = 64;

struct RowKind {
  std::string name;
  std::function<float(RandomValues&)> logit;
  bool is_in_short = false;
};

struct Filter {
  std::string name;
  SamplingParams sampling;
  std::vector<uint32_t> mask;  // as one of TreeToAccept::masks; empty: none
};

// Model rows are normal values with some tokens far above. The other kinds of rows are hard for a search.
std::vector<RowKind> RowKinds() {
  const auto normal = [](float scale) { return [scale](RandomValues& random) { return random.Normal() * scale; }; };
  return {
      {"normal, sigma 1", normal(1)},
      {"normal, sigma 3", normal(3), true},
      {"normal, sigma 6", normal(6)},
      {"peaked", [](RandomValues& random) { return random.Normal() * 2 + (random.Coin(1e-4) ? 12.0f : 0.0f); }, true},
      {"uniform", [](RandomValues& random) { return static_cast<float>(random.Uniform()); }, true},
      {"all equal", [](RandomValues&) { return 1.0f; }, true},
      {"in steps of 1/8", [](RandomValues& random) { return std::round(random.Normal() * 24) / 8; }},
      {"nine in ten equal", [](RandomValues& random) { return random.Coin(0.9) ? 0 : random.Normal(); }},
      {"half masked by -1e9", [](RandomValues& random) { return random.Coin(0.5) ? -1e9f : random.Normal() * 3; }},
      {"narrow, one far above", [](RandomValues& random) { return random.Coin(2e-5) ? 20 : random.Normal() * 0.01f; }},
  };
}

std::vector<Filter> Filters() {
  return {{"top_k 2", {.top_k = 2}, {}},
          {"top_k 50", {.top_k = 50}, {}},
          {"top_k 1000", {.top_k = 1000}, {}},
          {"top_k 2000", {.top_k = 2000}, {}},
          {"top_k 8000", {.top_k = 8000}, {}},
          {"top_k 40000", {.top_k = 40000}, {}},
          {"top_k 100000", {.top_k = 100000}, {}},
          {"top_k V - 1", {.top_k = kVocab - 1}, {}},
          {"top_p 0.5", {.top_p = 0.5f}, {}},
          {"top_p 0.9", {.top_p = 0.9f}, {}},
          {"top_p 0.95", {.top_p = 0.95f}, {}},
          {"top_p 0.95, temperature 0.7", {.temperature = 0.7f, .top_p = 0.95f}, {}},
          {"top_p 0.95, temperature 1.5", {.temperature = 1.5f, .top_p = 0.95f}, {}},
          {"top_p 0.95, temperature 8", {.temperature = 8, .top_p = 0.95f}, {}},
          {"top_p 0.99", {.top_p = 0.99f}, {}},
          {"top_p 0.999", {.top_p = 0.999f}, {}},
          {"top_k 50, top_p 0.95", {.top_k = 50, .top_p = 0.95f}, {}},
          {"top_k 8000, top_p 0.95", {.top_k = 8000, .top_p = 0.95f}, {}},
          {"top_k 100000, top_p 0.95", {.top_k = 100000, .top_p = 0.95f}, {}},
          {"min_p 0.05", {.min_p = 0.05f}, {}},
          {"top_p 0.95, min_p 0.001", {.top_p = 0.95f, .min_p = 0.001f}, {}}};
}

// The mask allows, of every 32 tokens, all but one or only one.
std::vector<Filter> Masks() {
  constexpr size_t kNumWords = (kVocab + 31) / 32;
  const std::vector<uint32_t> few_out(kNumWords, ~1u), few_in(kNumWords, 1u);
  return {{"mask of few, temperature 0", {.temperature = 0}, few_out},
          {"mask of most, temperature 0", {.temperature = 0}, few_in},
          {"mask of most, no filter", {}, few_in},
          {"mask of most, top_p 0.95", {.top_p = 0.95f}, few_in}};
}

void Draw(const std::vector<float>& logits, const Filter& filter, ThreadPool& pool) {
  const std::vector<int32_t> token_ids = {0}, parents = {-1};
  const std::vector<const uint32_t*> masks(filter.mask.empty() ? 0 : 1, filter.mask.data());
  std::vector<TreeToAccept> trees(kRows);
  for (int32_t row = 0; row < kRows; ++row) {
    trees[row].first_logit_row = row;
    trees[row].token_ids = token_ids;
    trees[row].parents = parents;
    trees[row].context_len = static_cast<uint32_t>(row);
    trees[row].sampling = filter.sampling;
    trees[row].masks = masks;
  }
  std::vector<AcceptedPath> paths(kRows);
  AcceptTrees({.logits = {logits.data(), DType::kF32, Shape(kRows, kVocab)},
               .num_tokens = kVocab,
               .trees = trees,
               .paths = paths},
              pool);
  for (const AcceptedPath& path : paths) FT_CHECK(path.status == DrawStatus::kOk);
}

struct Bounds {
  std::optional<double> greedy, keyed, filtered;
};

class DrawBench {
 public:
  DrawBench(const RowKind& kind, int num_rounds)
      : kind_(kind), num_rounds_(num_rounds), logits_(size_t{kRows} * kVocab) {
    RandomValues random(1);
    for (float& logit : logits_) logit = kind.logit(random);
  }

  void AddFindings(const Bounds& bounds, Findings& findings) {
    AddGreedy(bounds, findings);
    AddDraw({"no filter", {}, {}}, bounds.keyed, findings);
    AddDraw({"no filter, temperature 8", {.temperature = 8}, {}}, bounds.keyed, findings);
    for (const Filter& filter : Filters()) AddDraw(filter, bounds.filtered, findings);
    for (const Filter& mask : Masks()) AddDraw(mask, std::nullopt, findings);
  }

 private:
  double SecondsToDraw(const Filter& filter) {
    return Seconds(1, [&] { Draw(logits_, filter, pool_); });
  }

  // Passes are short, so there are more rounds.
  void AddGreedy(const Bounds& bounds, Findings& findings) {
    const std::span words(reinterpret_cast<const uint64_t*>(logits_.data()), logits_.size() / 2);
    std::vector<double> reads, draws;
    for (int round = 0; round < 8 * num_rounds_; ++round) {
      uint64_t sum = 0;
      reads.push_back(Seconds(1, [&] { sum = ReadAll(words, pool_); }));
      FT_CHECK(sum != 0);
      draws.push_back(SecondsToDraw({"", {.temperature = 0}, {}}));
    }
    findings.Add({.what = absl::StrCat(kind_.name, ": reading"), .value = PerEntry(reads), .unit = "ns per entry"});
    findings.Add({.what = absl::StrCat(kind_.name, ": temperature 0"),
                  .value = MedianRatio(draws, reads),
                  .unit = "of reading",
                  .at_most = bounds.greedy});
  }

  void AddDraw(const Filter& filter, std::optional<double> bound, Findings& findings) {
    std::vector<double> seconds;
    for (int round = 0; round < num_rounds_; ++round) seconds.push_back(SecondsToDraw(filter));
    findings.Add({.what = absl::StrCat(kind_.name, ": ", filter.name),
                  .value = PerEntry(seconds),
                  .unit = "ns per entry",
                  .at_most = bound});
  }

  static double PerEntry(const std::vector<double>& seconds) {
    return 1e9 * Median(seconds) / (double{kRows} * kVocab);
  }

  const RowKind& kind_;
  int num_rounds_;
  std::vector<float> logits_;
  ThreadPool pool_{1};
};

int Main() {
  const bool is_short = absl::GetFlag(FLAGS_short);
  const std::string isa_name = absl::GetFlag(FLAGS_isa);
  const std::optional<Isa> named = isa_name == "auto" ? SupportedIsas().front() : IsaFromName(isa_name);
  if (!named.has_value()) {
    std::fprintf(stderr, "--isa: there is no %s\n", isa_name.c_str());
    return 1;
  }
  const Isa isa = *named;
  const auto pin = IsaPin::Make(isa);
  Bounds bounds;
  if (isa < Isa::kAvxVnni) bounds = {.greedy = 1.3, .keyed = 1.5, .filtered = 3};
  Findings findings;
  for (const RowKind& kind : RowKinds()) {
    if (is_short && !kind.is_in_short) continue;
    DrawBench(kind, is_short ? 3 : 7).AddFindings(bounds, findings);
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
