// SPDX-License-Identifier: Apache-2.0
// Measures the cost of row invariance (E1) in decoding. It compares the serving kernels, at one row and the shapes of
// Llama 3.2 1B, with variants that ignore E1, and with a plain read of the same bytes, which no variant can beat.
//
//   e1_cost_bench [--short] [--json] [--threads=N]
//
// Matrix products: matmul_variants.h. Decoding reads weights that are larger than the caches. Weights in the
// second-level cache are for information. Attention: with E1, one thread walks a head's context in order. The variant
// cuts the context into equal parts, with a task per head and part (flash-decoding). The variant computes every part
// with the serving kernel and skips the merge of the parts, so its time is a lower bound. Within a task E1 costs
// nothing, because sixteen chains of additions run at once (kernels/cpu/attention/attention.cc).
//
// Every round measures all contenders in turn and begins with another one each time. A ratio is the median of the
// rounds' ratios, with its 95 % confidence interval from order statistics. The bench chooses "fastest" afterwards, by
// the median, which favours the variants. model_bench compares a whole decode step with a plain read. --short: fewer
// rounds, less memory.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/check.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/weight.h"
#include "tests/bench/findings.h"
#include "tests/bench/machine_rates.h"
#include "tests/bench/matmul_variants.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/cases/random_values.h"

ABSL_FLAG(bool, short, false, "fewer rounds, less memory");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, threads, 0, "threads; 0: one per core");

namespace foretoken::bench {
namespace {

using kernels::DType;
using kernels::MatMulArgs;
using kernels::Shape;
using kernels::cpu::CpuWeight;
using kernels::cpu::Isa;
using kernels::cpu::Pages;
using kernels::cpu::ThreadPool;

// The first contender is the serving kernel.
struct Contender {
  std::string name;
  bool ignores_e1 = false;
  std::function<void()> run;
  std::vector<double> seconds;  // one value per round
};

void Race(std::vector<Contender>& contenders, int num_rounds, const ThreadPool& pool) {
  for (Contender& contender : contenders) contender.run();  // loads pages and starts threads
  for (int round = 0; round < num_rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[(round + i) % contenders.size()];
      contender.seconds.push_back(Seconds(pool.num_threads(), contender.run));
    }
  }
}

struct Ratio {
  double median = 0, low = 0, high = 0;
};

Ratio RatioOf(const Contender& a, const Contender& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  std::ranges::sort(ratios);
  const auto last = static_cast<double>(ratios.size() - 1);
  // The places in sorted order between which the median lies with 95 %: n / 2 -+ 1.96 sqrt(n) / 2.
  const double reach = 0.98 * std::sqrt(last + 1);
  const auto at = [&](double rank) { return ratios[static_cast<size_t>(std::clamp(rank, 0.0, last))]; };
  return {Median(ratios), at(std::floor(last / 2 - reach)), at(std::ceil(last / 2 + reach))};
}

std::string Interval(const Ratio& ratio) { return absl::StrFormat("[%.3f, %.3f]", ratio.low, ratio.high); }

void Report(const std::string& what, const std::vector<Contender>& contenders, std::optional<double> at_most,
            Findings& findings) {
  const Contender& ours = contenders.front();
  findings.Add({.what = absl::StrCat(what, ": ours"), .value = 1e6 * Median(ours.seconds), .unit = "us"});
  const Contender* fastest = nullptr;
  for (const Contender& contender : std::span(contenders).subspan(1)) {
    const Ratio ratio = RatioOf(contender, ours);
    findings.Add(
        {.what = absl::StrCat("  ", contender.name, " ", Interval(ratio)), .value = ratio.median, .unit = "x of ours"});
    if (!contender.ignores_e1) continue;
    if (fastest == nullptr || Median(contender.seconds) < Median(fastest->seconds)) fastest = &contender;
  }
  const Ratio cost = RatioOf(ours, *fastest);
  findings.Add({.what = absl::StrCat("  E1's cost: ours / ", fastest->name, " ", Interval(cost)),
                .value = 100 * (cost.median - 1),
                .unit = "%",
                .at_most = at_most});
}

// The products of a decode step, in turn.
class Products {
 public:
  Products(std::span<const std::pair<int64_t, int64_t>> shapes, ThreadPool& pool) : pool_(pool) {
    testing::RandomValues random(1);
    for (const auto& [num_outputs, num_inputs] : shapes) {
      CpuWeight& weight = *weights_.emplace_back(std::make_unique<CpuWeight>(num_outputs, num_inputs));
      for (size_t i = 0; i < weight.num_bytes() / sizeof(uint16_t); ++i) {
        weight.bf16_panel(0)[i] = kernels::Bf16FromFloat(static_cast<float>(i * 40503 % 1021) * 0x1p-10f - 0.5f);
      }
      num_bytes_ += weight.num_bytes();
      for (int64_t i = x_.size(); i < num_inputs; ++i) x_.push_back(kernels::Bf16FromFloat(random.Normal()));
      out_.resize(std::max<size_t>(out_.size(), num_outputs));
    }
  }

  void RunOurs() {
    ForEach([&](const MatMulArgs& args) {
      kernels::cpu::MatMul(args, kernels::cpu::KernelOf(Isa::kAvx512Bf16), scratch_, pool_);
    });
  }
  void Run(const MatMulVariant& matmul) {
    ForEach([&](const MatMulArgs& args) { matmul.run(args, pool_); });
  }
  void Read() {
    for (const auto& weight : weights_) {
      const auto* words = reinterpret_cast<const uint64_t*>(weight->panel(0));
      FT_CHECK(ReadAll({words, weight->num_bytes() / sizeof(uint64_t)}, pool_) != 0);
    }
  }

  size_t num_bytes() const { return num_bytes_; }
  std::span<const float> last_out() const {
    return {out_.data(), static_cast<size_t>(weights_.back()->out_features())};
  }

 private:
  template <typename Fn>
  void ForEach(Fn&& fn) {
    for (const auto& weight : weights_) {
      fn({.x = {x_.data(), DType::kBF16, Shape(1, weight->in_features())},
          .weight = weight.get(),
          .out = {out_.data(), DType::kF32, Shape(1, weight->out_features())}});
    }
  }

  ThreadPool& pool_;
  std::vector<std::unique_ptr<CpuWeight>> weights_;
  std::vector<uint16_t> x_;
  std::vector<float> out_;
  Pages scratch_;
  size_t num_bytes_ = 0;
};

// The tolerance for f32 sums of `num_inputs` products, of normal values with numbers below 1/2, in another order: 4
// sqrt(K) roundoffs.
void CheckEqualFunction(Products& products, const MatMulVariant& matmul) {
  products.RunOurs();
  const std::vector<float> ours(products.last_out().begin(), products.last_out().end());
  products.Run(matmul);
  for (size_t i = 0; i < ours.size(); ++i) FT_CHECK(std::abs(ours[i] - products.last_out()[i]) < 0.01f);
}

void RaceProducts(const std::string& what, Products& products, int num_passes, int num_rounds,
                  std::optional<double> at_most, const ThreadPool& pool, Findings& findings) {
  const auto passes = [num_passes](const auto& run) {
    return [num_passes, run] {
      for (int pass = 0; pass < num_passes; ++pass) run();
    };
  };
  std::vector<Contender> contenders = {{.name = "ours", .run = passes([&] { products.RunOurs(); })}};
  for (const MatMulVariant& matmul : MatMulVariants()) {
    CheckEqualFunction(products, matmul);
    contenders.push_back(
        {.name = matmul.name, .ignores_e1 = !matmul.keeps_e1, .run = passes([&] { products.Run(matmul); })});
  }
  contenders.push_back({.name = "plain read", .run = passes([&] { products.Read(); })});
  Race(contenders, num_rounds, pool);
  Report(what, contenders, at_most, findings);
}

struct AttentionShape {
  int32_t context = 0;
  int32_t num_kv_heads = 8;  // with 4 heads each
  int32_t num_layers = 1;
};

// Attention of one row to all of the context in every layer, in `num_parts` equal parts.
class DecodeAttention {
 public:
  DecodeAttention(const AttentionShape& shape, ThreadPool& pool) : context_(shape.context), pool_(pool) {
    kv_ = {.num_layers = shape.num_layers,
           .num_blocks = context_ / kernels::kKvBlockSize,
           .num_kv_heads = shape.num_kv_heads,
           .head_dim = 64};
    pages_ = Pages(kv_.num_bytes());
    kv_.data = pages_.data();
    auto* values = static_cast<uint16_t*>(kv_.data);
    for (size_t i = 0; i < kv_.num_bytes() / sizeof(uint16_t); ++i) {
      values[i] = kernels::Bf16FromFloat(static_cast<float>(i * 40503 % 1021) * 0x1p-10f - 0.5f);
    }
    for (int32_t block = 0; block < kv_.num_blocks; ++block) blocks_.push_back(block * 37 % kv_.num_blocks);
  }

  // A part is a row of its own, the last row of its range. Its window is as long as the range.
  void Run(int32_t num_parts) {
    const int32_t num_columns = 4 * kv_.num_kv_heads * kv_.head_dim;
    const std::vector<float> q(size_t{1} * num_parts * num_columns, 0.1f);
    std::vector<uint16_t> out(q.size());
    std::vector<int32_t> positions, chain_lens, segment_begins = {0}, table_begins = {0}, tables;
    for (int32_t part = 1; part <= num_parts; ++part) {
      chain_lens.push_back(context_ / num_parts * part);
      positions.push_back(chain_lens.back() - 1);
      segment_begins.push_back(part);
      tables.insert(tables.end(), blocks_.begin(), blocks_.end());
      table_begins.push_back(static_cast<int32_t>(tables.size()));
    }
    const std::vector<int32_t> ancestor_begins(num_parts + 1, 0);
    for (int32_t layer = 0; layer < kv_.num_layers; ++layer) {
      kernels::cpu::Attention({.q = {q.data(), DType::kF32, Shape(num_parts, num_columns)},
                               .batch = {.num_rows = num_parts,
                                         .num_segments = num_parts,
                                         .positions = positions.data(),
                                         .chain_lens = chain_lens.data(),
                                         .ancestor_begins = ancestor_begins.data(),
                                         .segment_begins = segment_begins.data(),
                                         .block_table_begins = table_begins.data(),
                                         .block_tables = tables.data()},
                               .kv = kv_,
                               .layer = layer,
                               .window = num_parts > 1 ? std::optional(context_ / num_parts) : std::nullopt,
                               .scale = 0.125f,
                               .out = {out.data(), DType::kBF16, Shape(num_parts, num_columns)}},
                              pool_);
    }
  }
  void Read() {
    FT_CHECK(ReadAll({static_cast<const uint64_t*>(kv_.data), kv_.num_bytes() / sizeof(uint64_t)}, pool_) != 0);
  }

 private:
  int32_t context_;
  ThreadPool& pool_;
  kernels::KvCacheView kv_;
  Pages pages_;
  std::vector<int32_t> blocks_;
};

void RaceAttention(const AttentionShape& shape, int num_rounds, std::optional<double> at_most, ThreadPool& pool,
                   Findings& findings) {
  DecodeAttention attention(shape, pool);
  std::vector<Contender> contenders = {{.name = "ours", .run = [&] { attention.Run(1); }}};
  for (const int32_t num_parts : {2, 4, 8}) {
    contenders.push_back({.name = absl::StrCat("context in ", num_parts, " parts"),
                          .ignores_e1 = true,
                          .run = [&attention, num_parts] { attention.Run(num_parts); }});
  }
  contenders.push_back({.name = "plain read of K and V", .run = [&] { attention.Read(); }});
  Race(contenders, num_rounds, pool);
  Report(absl::StrFormat("attention, context %d, %d kv heads, %d layers", shape.context, shape.num_kv_heads,
                         shape.num_layers),
         contenders, at_most, findings);
}

int Main() {
  if (MatMulVariants().empty()) {
    std::printf("  skipped: this machine has no AVX-512-BF16, for which the variants are written\n");
    return 0;
  }
  const bool is_short = absl::GetFlag(FLAGS_short), as_json = absl::GetFlag(FLAGS_json);
  const int num_threads = NumThreads(absl::GetFlag(FLAGS_threads)), num_rounds = is_short ? 15 : 75;
  const auto pin = kernels::cpu::IsaPin::Make(Isa::kAvx512Bf16);
  ThreadPool pool(num_threads);
  Findings findings;
  {
    std::vector<std::pair<int64_t, int64_t>> shapes;  // qkv, o, gate and up, down
    for (int layer = 0; layer < (is_short ? 2 : 4); ++layer) {
      shapes.insert(shapes.end(), {{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}});
    }
    Products products(shapes, pool);
    RaceProducts(absl::StrFormat("products of %d layers, %.2f GB", shapes.size() / 4, 1e-9 * products.num_bytes()),
                 products, /*num_passes=*/1, num_rounds, /*at_most=*/10, pool, findings);
  }
  {
    std::vector<std::pair<int64_t, int64_t>> shapes = {{4096, 256}};  // the demo model's
    for (int layer = 0; layer < 8; ++layer) {
      shapes.insert(shapes.end(), {{512, 256}, {256, 256}, {1536, 256}, {256, 768}});
    }
    Products products(shapes, pool);
    RaceProducts(absl::StrFormat("products of a small model, %.1f MB, 10 passes", 1e-6 * products.num_bytes()),
                 products,
                 /*num_passes=*/10, num_rounds, /*at_most=*/std::nullopt, pool, findings);
  }
  RaceAttention({.context = 1024, .num_layers = 16}, num_rounds, /*at_most=*/10, pool, findings);
  RaceAttention({.context = 8192, .num_layers = 4}, num_rounds, /*at_most=*/10, pool, findings);
  if (num_threads > 1) {
    const AttentionShape few_heads = {.context = 8192, .num_kv_heads = 1, .num_layers = 16};
    RaceAttention(few_heads, num_rounds, /*at_most=*/std::nullopt, pool, findings);
  }
  if (!as_json) std::printf("avx512_bf16, %d threads, %d rounds, medians [95 %% interval]\n", num_threads, num_rounds);
  findings.Print(as_json);
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
