// SPDX-License-Identifier: Apache-2.0
// Compares the matrix product with the best that the machine can do, for every isa.
//
//   kernels_bench [--short] [--isa=avx2] [--threads=N]
//
// Few rows: the weight is a stream of 1 GiB, compared with a read of as many bytes. Integers: as many weights in every
// form, one row and 8, rounded to int8, compared with a read of the form's own bytes and with 4 bits. Many rows: two
// shapes of a 1B model, compared with the same instruction in registers. The bench measures both sides in turn, so
// noise meets both. Figures are medians, and ratios are medians of the rounds' ratios. --short: the best isa, few
// rounds, a smaller stream.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_integer_avx512.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/make_backend.h"
#include "tests/bench/machine_rates.h"
#include "tests/bench/stopwatch.h"

ABSL_FLAG(bool, short, false, "the best isa alone, on all cores, and fewer rounds: a few seconds");
ABSL_FLAG(std::string, isa, "", "one isa, instead of all");
ABSL_FLAG(int, threads, 0, "threads; 0: one, and then two");

namespace foretoken::bench {
namespace {

using namespace kernels;       // NOLINT
using namespace kernels::cpu;  // NOLINT

struct Effort {
  int num_rounds = 12;
  int64_t stream_bytes = int64_t{1} << 30;
};

// Random values: zeros would leave pages unmapped, and tiny values would make denormal products.
void Fill(uint16_t* values, int64_t count, ThreadPool& pool) {
  constexpr int64_t kChunk = 1 << 20;
  pool.ParallelFor((count + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t end = std::min((chunk + 1) * kChunk, count);
    for (int64_t i = chunk * kChunk; i < end; ++i) values[i] = static_cast<uint16_t>(0x3c00 + i * 40503 % 1021);
  });
}

struct Product {
  Product(int64_t num_rows, const CpuWeight& weight, ThreadPool& pool)
      : x(num_rows * weight.in_features() * sizeof(uint16_t)), out(num_rows * weight.out_features() * sizeof(float)) {
    Fill(static_cast<uint16_t*>(x.data()), num_rows * weight.in_features(), pool);
    args = {.x = {x.data(), DType::kBF16, Shape(num_rows, weight.in_features())},
            .weight = &weight,
            .out = {out.data(), DType::kF32, Shape(num_rows, weight.out_features())}};
  }

  Pages x;
  Pages out;
  MatMulArgs args;
};

CpuWeight RandomWeight(int64_t num_outputs, int64_t num_inputs, ThreadPool& pool) {
  CpuWeight weight(num_outputs, num_inputs);
  Fill(weight.bf16_panel(0), static_cast<int64_t>(weight.num_bytes() / 2), pool);
  return weight;
}

void StreamFewRows(Isa isa, const Effort& effort, ThreadPool& pool) {
  constexpr int64_t kInputs = 2048;
  const CpuWeight weight = RandomWeight(effort.stream_bytes / (2 * kInputs), kInputs, pool);
  const std::span words(reinterpret_cast<const uint64_t*>(weight.panel(0)), weight.num_bytes() / 8);
  Pages scratch;
  const std::vector<int64_t> row_counts = {1, 2, 4, 8, 12, 16, 24, 32, 64};
  std::vector<Product> products;
  for (const int64_t num_rows : row_counts) products.emplace_back(num_rows, weight, pool);

  std::vector<double> read_seconds;
  std::vector<std::vector<double>> seconds(row_counts.size());
  for (int round = 0; round < effort.num_rounds; ++round) {
    uint64_t sum = 0;
    read_seconds.push_back(Seconds(pool.num_threads(), [&] { sum = ReadAll(words, pool); }));
    if (sum == 0) std::abort();
    for (size_t i = 0; i < row_counts.size(); ++i) {
      const auto multiply = [&] { MatMul(products[i].args, KernelOf(isa), scratch, pool); };
      seconds[i].push_back(Seconds(pool.num_threads(), multiply));
    }
  }
  const double gigabytes = static_cast<double>(weight.num_bytes()) * 1e-9;
  std::printf("  read of %.2f GB: %.2f GB/s\n", gigabytes, gigabytes / Median(read_seconds));
  for (size_t i = 0; i < row_counts.size(); ++i) {
    const double median = Median(seconds[i]);
    std::printf("  T %3ld: %8.2f ms  %6.2f GB/s  %.3f of the read's time, %.3f of one row's\n", row_counts[i],
                median * 1e3, gigabytes / median, MedianRatio(seconds[i], read_seconds),
                MedianRatio(seconds[i], seconds[0]));
  }
}

void StreamIntegers(Isa isa, const Effort& effort, ThreadPool& pool) {
  struct Form {
    const char* name;
    int bits;
    bool is_e2m1 = false;
  };
  constexpr Form kForms[] = {{"4 bits", 4}, {"E2M1", 4, true}, {"6 bits", 6}, {"8 bits", 8}};
  constexpr int64_t kInputs = 2048, kGroupSize = 32;
  constexpr int kRowCounts[] = {1, 8};
  std::vector<CpuWeight> weights;
  for (const Form& form : kForms) {
    weights.emplace_back(
        effort.stream_bytes / (2 * kInputs), kInputs,
        IntegerPanels{.bits = form.bits,
                      .group_size = kGroupSize,
                      .num_groups = kInputs / kGroupSize,
                      .int8_rows = true,
                      .order = HasAvx512Integers(isa, true) ? Avx512OrderOf(true) : IntegerOrder::kQuads,
                      .is_e2m1 = form.is_e2m1});
    CpuWeight& weight = weights.back();
    Fill(reinterpret_cast<uint16_t*>(weight.panel(0)), static_cast<int64_t>(weight.num_bytes() / 2), pool);
  }
  Pages scratch;
  for (const int num_rows : kRowCounts) {
    std::vector<std::vector<double>> seconds(weights.size()), read_seconds(weights.size());
    std::vector<Product> products;
    for (const CpuWeight& weight : weights) products.emplace_back(num_rows, weight, pool);
    for (int round = 0; round < effort.num_rounds; ++round) {
      for (size_t i = 0; i < weights.size(); ++i) {
        const std::span words(reinterpret_cast<const uint64_t*>(weights[i].panel(0)), weights[i].num_bytes() / 8);
        uint64_t sum = 0;
        read_seconds[i].push_back(Seconds(pool.num_threads(), [&] { sum = ReadAll(words, pool); }));
        if (sum == 0) std::abort();
        const auto multiply = [&] { MatMul(products[i].args, KernelOf(isa, weights[i].integers()), scratch, pool); };
        seconds[i].push_back(Seconds(pool.num_threads(), multiply));
      }
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      std::printf("  %s, T %d: %8.2f ms, %6.2f GB/s, %.3f of the read's time, %.3f of 4 bits'\n", kForms[i].name,
                  num_rows, Median(seconds[i]) * 1e3,
                  static_cast<double>(weights[i].num_bytes()) * 1e-9 / Median(seconds[i]),
                  MedianRatio(seconds[i], read_seconds[i]), MedianRatio(seconds[i], seconds[0]));
    }
  }
}

void MultiplyManyRows(Isa isa, const Effort& effort, ThreadPool& pool) {
  for (const auto& [num_outputs, num_inputs] : {std::pair<int64_t, int64_t>{8192, 2048}, {2048, 8192}}) {
    const CpuWeight weight = RandomWeight(num_outputs, num_inputs, pool);
    Pages scratch;
    for (const int64_t num_rows : {64, 128, 512}) {
      Product product(num_rows, weight, pool);
      const double count = static_cast<double>(num_rows) * static_cast<double>(num_outputs * num_inputs);
      std::vector<double> seconds, register_seconds;  // a multiply-add
      for (int round = 0; round < effort.num_rounds; ++round) {
        double register_count = 0;
        const double register_time =
            Seconds(pool.num_threads(), [&] { register_count = MultiplyInRegisters(isa, pool); });
        register_seconds.push_back(register_time / register_count);
        const auto multiply = [&] { MatMul(product.args, KernelOf(isa), scratch, pool); };
        seconds.push_back(Seconds(pool.num_threads(), multiply) / count);
      }
      std::printf("  T %3ld, K %ld, N %ld: %7.1f GMAC/s, %.3f of the rate in registers\n", num_rows, num_inputs,
                  num_outputs, 1e-9 / Median(seconds), MedianRatio(register_seconds, seconds));
    }
  }
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  using namespace foretoken;  // NOLINT
  absl::ParseCommandLine(argc, argv);
  const bool is_short = absl::GetFlag(FLAGS_short);
  const bench::Effort effort = is_short ? bench::Effort{.num_rounds = 3, .stream_bytes = 256 << 20} : bench::Effort{};
  std::vector<int> thread_counts = is_short ? std::vector<int>{2} : std::vector<int>{1, 2};
  if (absl::GetFlag(FLAGS_threads) > 0) thread_counts = {absl::GetFlag(FLAGS_threads)};
  const std::string wanted = absl::GetFlag(FLAGS_isa);
  const auto is_wanted = [&](kernels::cpu::Isa isa) { return wanted.empty() || wanted == kernels::cpu::Name(isa); };
  if (std::ranges::none_of(kernels::cpu::SupportedIsas(), is_wanted)) {
    std::fprintf(stderr, "--isa: this machine has no %s\n", wanted.c_str());
    return 1;
  }
  for (const kernels::cpu::Isa isa : kernels::cpu::SupportedIsas()) {
    if (!is_wanted(isa)) continue;
    const auto pin = kernels::cpu::IsaPin::Make(isa);
    for (const int num_threads : thread_counts) {
      kernels::cpu::ThreadPool pool(num_threads);
      std::printf("%s, %d threads\n", kernels::cpu::Name(isa), num_threads);
      bench::StreamFewRows(isa, effort, pool);
      bench::StreamIntegers(isa, effort, pool);
      bench::MultiplyManyRows(isa, effort, pool);
    }
    if (is_short) break;
  }
}
