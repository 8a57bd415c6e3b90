// SPDX-License-Identifier: Apache-2.0
// Products with matrices of integers on the CPU: the rounding, the layouts, the sums against a reference in double
// precision, and row invariance (E1), on every instruction set. If this test fails, a quantised model writes wrong
// tokens, or tokens that depend on other requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/embed.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_integer_avx2.h"
#include "kernels/cpu/matmul/matmul_integer_avx512.h"
#include "kernels/cpu/matmul/matmul_integer_highway.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/quantize.h"
#include "tests/reference/matmul.h"
#include "tests/testing/cases/emulated_amx.h"
#include "tests/testing/cases/random_values.h"

#if defined(__x86_64__)
#define FORETOKEN_BYTES_TARGET "avx2,fma,f16c"
#include "kernels/cpu/matmul/matmul_integer_256.h"
#endif

namespace foretoken::kernels::cpu {
namespace {

using reference::MatMulInput;

// What a reader of a file or of this page would do by hand: the value that stands for each element.
std::vector<float> RoundedByHand(const std::vector<float>& values, int64_t num_inputs, int64_t group_size, int bits) {
  std::vector<float> rounded = values;
  const double steps = bits == 8 ? 127.5 : 7.5, lowest = bits == 8 ? -128 : -8;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(num_inputs)) {
    for (int64_t begin = 0; begin < num_inputs; begin += group_size) {
      const int64_t end = std::min(begin + group_size, num_inputs);
      float max = 0;
      for (int64_t i = begin; i < end; ++i) max = std::max(max, std::fabs(values[row + i]));
      const float scale = FloatFromBf16(Bf16FromFloat(static_cast<float>(max / steps)));
      for (int64_t i = begin; i < end; ++i) {
        const float quotient = values[row + i] * (1 / scale);
        const double integer = std::clamp<double>(std::nearbyint(quotient), lowest, -lowest - 1);
        rounded[row + i] = scale == 0 ? 0.0f : static_cast<float>(scale * integer);
      }
    }
  }
  return rounded;
}

std::vector<double> RowsRoundedByHand(const std::vector<uint16_t>& x, int64_t num_inputs, int64_t group_size) {
  std::vector<double> values;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(num_inputs)) {
    for (int64_t begin = 0; begin < num_inputs; begin += group_size) {
      const int64_t end = std::min(begin + group_size, num_inputs);
      float max = 0;
      for (int64_t i = begin; i < end; ++i) max = std::max(max, std::fabs(FloatFromBf16(x[row + i])));
      const float scale = max / 127;
      for (int64_t i = begin; i < end; ++i) {
        const float integer = max == 0 ? 0 : std::nearbyint(FloatFromBf16(x[row + i]) * (127 / max));
        values.push_back(static_cast<double>(scale) * integer);
      }
    }
  }
  return values;
}

std::vector<float> RandomBf16(size_t count, uint32_t seed, float scale = 1) {
  std::vector<float> values = testing::RandomValues(seed).Normals(count);
  for (float& value : values) value = FloatFromBf16(Bf16FromFloat(value * scale));
  return values;
}

MatMulInput RandomIntegerInput(int64_t num_rows, int64_t num_outputs, int64_t num_inputs) {
  MatMulInput input = {.num_rows = num_rows, .num_outputs = num_outputs, .num_inputs = num_inputs};
  for (const float value : RandomBf16(num_rows * num_inputs, 1)) input.x.push_back(Bf16FromFloat(value));
  input.weight = RandomBf16(num_outputs * num_inputs, 2, 0.05f);
  return input;
}

struct ProductCase {
  Isa isa = Isa::kBaseline;
  int bits = 8;
  bool int8_rows = false;
  int32_t group_size = 32;
};

void PrintTo(const ProductCase& c, std::ostream* out) {
  *out << Name(c.isa) << "_w" << c.bits << (c.int8_rows ? "a8" : "a16") << "_g" << c.group_size;
}

std::vector<ProductCase> ProductCases() {
  std::vector<ProductCase> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const int bits : {4, 8}) {
      for (const bool int8_rows : {false, true}) {
        for (const int32_t group_size : {16, 32, 64, 128}) cases.push_back({isa, bits, int8_rows, group_size});
      }
    }
  }
  return cases;
}

class IntegerMatMulTest : public ::testing::TestWithParam<ProductCase> {
 protected:
  std::unique_ptr<CpuWeight> Prepare(const MatMulInput& input) {
    const ConstTensorView part = {input.weight.data(), DType::kF32, Shape(input.num_outputs, input.num_inputs)};
    const auto kept_as = GetParam().bits == 8 ? WeightQuantization::kInt8 : WeightQuantization::kInt4;
    return PrepareWeight({.parts = {&part, 1}, .quantization = {kept_as, GetParam().group_size, GetParam().int8_rows}},
                         pool_, GetParam().isa);
  }

  std::vector<float> Run(const MatMulInput& input, const CpuWeight& weight) {
    std::vector<float> out = input.previous;
    out.resize(input.num_rows * input.num_outputs, std::numeric_limits<float>::quiet_NaN());
    MatMul({.x = {input.x.data(), DType::kBF16, Shape(input.num_rows, input.num_inputs)},
            .weight = &weight,
            .bias = input.bias.empty() ? nullptr : input.bias.data(),
            .mode = input.previous.empty() ? OutputMode::kStore : OutputMode::kAdd,
            .out = {out.data(), DType::kF32, Shape(input.num_rows, input.num_outputs)}},
           KernelOf(GetParam().isa, weight.integers()), scratch_, pool_);
    return out;
  }

  std::vector<float> Values(const CpuWeight& weight) {
    std::vector<float> values(weight.out_features() * weight.in_features());
    for (int64_t output = 0; output < weight.out_features(); ++output) {
      ReadValues(*weight.integers(), weight.panel(output / kPanelWidth), static_cast<int>(output % kPanelWidth),
                 weight.in_features(), values.data() + output * weight.in_features());
    }
    return values;
  }

  // Of an output with one group.
  float WeightScale(const MatMulInput& input, int64_t output) {
    std::vector<uint8_t> codes(input.num_inputs);
    return QuantizeGroup(input.weight.data() + output * input.num_inputs, input.num_inputs, GetParam().bits,
                         codes.data());
  }

  // A product of bf16 rows with small integers is exact in f32, and so are sums over int8 rows. A row's sum has at most
  // K + 3 roundings for each group and element together, and two for the scales' product.
  void ExpectCloseTo(const MatMulInput& input) {
    SCOPED_TRACE(::testing::Message() << "T " << input.num_rows << " N " << input.num_outputs << " K "
                                      << input.num_inputs);
    const auto weight = Prepare(input);
    ExpectClose(input, Values(*weight), Run(input, *weight));
  }

  void ExpectClose(const MatMulInput& input, const std::vector<float>& values, const std::vector<float>& out) {
    std::vector<double> x;
    if (GetParam().int8_rows) {
      x = RowsRoundedByHand(input.x, input.num_inputs, GetParam().group_size);
    } else {
      for (const uint16_t bits : input.x) x.push_back(FloatFromBf16(bits));
    }
    const double n = static_cast<double>(input.num_inputs) + 6;
    const double gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
    for (int64_t row = 0; row < input.num_rows; ++row) {
      for (int64_t output = 0; output < input.num_outputs; ++output) {
        double sum = input.bias.empty() ? 0 : input.bias[output];
        double magnitude = std::fabs(sum);
        for (int64_t i = 0; i < input.num_inputs; ++i) {
          const double product = x[row * input.num_inputs + i] * values[output * input.num_inputs + i];
          sum += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(out[row * input.num_outputs + output], sum, gamma * magnitude + n * 0x1p-126)
            << "row " << row << " output " << output;
      }
    }
  }

  std::optional<IsaPin> pin_ = IsaPin::Make(GetParam().isa);
  ThreadPool pool_{2};
  Pages scratch_;
};

TEST_P(IntegerMatMulTest, KeepsTheValuesRoundedByHand) {
  const MatMulInput input = RandomIntegerInput(0, 50, 203);
  const auto weight = Prepare(input);
  EXPECT_EQ(Values(*weight), RoundedByHand(input.weight, 203, GetParam().group_size, GetParam().bits));
  EXPECT_EQ(weight->out_features(), 50);
  EXPECT_EQ(weight->in_features(), 203);
}

TEST_P(IntegerMatMulTest, EmbedsTheSameValues) {
  const MatMulInput input = RandomIntegerInput(0, 50, 96);
  const auto weight = Prepare(input);
  const std::vector<float> values = Values(*weight);
  const std::vector<int32_t> ids = {49, 0, 17};
  std::vector<float> out(ids.size() * 96);
  Embed({.weight = weight.get(), .token_ids = ids.data(), .out = {out.data(), DType::kF32, Shape(3, 96)}}, pool_);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], values[ids[i / 96] * 96 + i % 96]) << i;
}

TEST_P(IntegerMatMulTest, AgreesWithTheReferenceForEveryRowCount) {
  for (int64_t num_rows = 1; num_rows <= 36; ++num_rows) ExpectCloseTo(RandomIntegerInput(num_rows, 40, 160));
}

TEST_P(IntegerMatMulTest, AgreesWithTheReferenceForOddShapes) {
  for (const int64_t num_outputs : {1, 15, 17, 129}) {
    for (const int64_t num_inputs : {1, 2, 31, 33, 75, 200}) {
      for (const int64_t num_rows : {1, 7, 19}) ExpectCloseTo(RandomIntegerInput(num_rows, num_outputs, num_inputs));
    }
  }
}

TEST_P(IntegerMatMulTest, AgreesWithTheReferenceForLongSumsAndManyRows) {
  ExpectCloseTo(RandomIntegerInput(1, 40, 8192));
  ExpectCloseTo(RandomIntegerInput(20, 33, 4099));
  ExpectCloseTo(RandomIntegerInput(200, 33, 1200));
}

// Rows become int8 as QuantizeRowGroup makes them, on every instruction set and whatever the values are: a group with a
// NaN, an infinity, a ragged end, nothing but zeros, or values too small for a scale. Each sum here is of one group.
TEST_P(IntegerMatMulTest, MakesTheIntegersOfTheFormulaOfAnyRow) {
  if (!GetParam().int8_rows) GTEST_SKIP() << "for rows of int8";
  const auto inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float denormal = 0x1p-130f;
  for (const int64_t num_inputs : {1, 15, 16, 31, 32}) {
    if (num_inputs > GetParam().group_size) break;
    for (const std::vector<float>& odd : std::vector<std::vector<float>>{{},
                                                                         {nan},
                                                                         {inf},
                                                                         {-inf, nan},
                                                                         {0x1.fep127f},
                                                                         {denormal},
                                                                         {-denormal, 0x1p-126f},
                                                                         {127, 126.5f, 0.5f, 1.5f}}) {
      SCOPED_TRACE(::testing::Message() << "K " << num_inputs << " " << ::testing::PrintToString(odd));
      MatMulInput input = RandomIntegerInput(1, 16, num_inputs);
      const bool is_broken = std::ranges::any_of(odd, [](float value) { return !std::isfinite(value); });
      if (odd.size() == 1 && std::fabs(odd[0]) < 0x1p-120f) std::ranges::fill(input.x, uint16_t{0});
      for (size_t i = 0; i < std::min<size_t>(odd.size(), num_inputs); ++i) input.x[i] = Bf16FromFloat(odd[i]);
      std::vector<float> x(GetParam().group_size);
      for (int64_t i = 0; i < num_inputs; ++i) x[i] = FloatFromBf16(input.x[i]);
      std::vector<int8_t> integers(x.size());
      const float scale = QuantizeRowGroup(x.data(), GetParam().group_size, integers.data());
      const auto weight = Prepare(input);
      const std::vector<float> values = Values(*weight);
      const std::vector<float> out = Run(input, *weight);
      for (int64_t output = 0; output < 16; ++output) {
        const float* row = values.data() + output * num_inputs;
        const float weight_scale = WeightScale(input, output);
        int64_t sum = 0;
        for (int64_t i = 0; i < num_inputs; ++i) sum += std::lround(row[i] / weight_scale) * integers[i];
        const float expected = static_cast<float>(sum) * (weight_scale * scale);
        ASSERT_EQ(std::isnan(expected), is_broken);
        if (is_broken) {
          EXPECT_TRUE(std::isnan(out[output])) << output;
        } else {
          EXPECT_EQ(out[output], expected) << output;
        }
      }
    }
  }
}

// A broken model must not serve plausible text.
TEST_P(IntegerMatMulTest, ShowsAWeightThatIsNotFinite) {
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3.4e38f}) {
    MatMulInput input = RandomIntegerInput(3, 40, 200);
    input.weight[17 * 200 + 133] = odd;  // of output 17; bf16 has no value as large as the last one
    const std::vector<float> out = Run(input, *Prepare(input));
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i % 40 == 17) << i;
  }
}

TEST_P(IntegerMatMulTest, AddsBiasAndPreviousValues) {
  MatMulInput input = RandomIntegerInput(3, 40, 64);
  const auto weight = Prepare(input);
  const std::vector<float> plain = Run(input, *weight);
  input.bias = RandomBf16(40, 3);
  input.previous = RandomBf16(3 * 40, 4);
  const std::vector<float> out = Run(input, *weight);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], input.previous[i] + (plain[i] + input.bias[i % 40]));
}

// E1: a row's results are the same bits alone and among any other rows.
TEST_P(IntegerMatMulTest, RowsDoNotDependOnOtherRows) {
  for (const auto& [num_outputs, num_inputs] : {std::pair<int64_t, int64_t>{50, 2336}, {40, 96}}) {
    const MatMulInput all = RandomIntegerInput(150, num_outputs, num_inputs);
    const auto weight = Prepare(all);
    std::vector<float> alone;
    for (int64_t row = 0; row < all.num_rows; ++row) {
      MatMulInput one = all;
      one.num_rows = 1;
      one.x.assign(all.x.begin() + row * num_inputs, all.x.begin() + (row + 1) * num_inputs);
      const std::vector<float> out = Run(one, *weight);
      alone.insert(alone.end(), out.begin(), out.end());
    }
    for (const int64_t num_rows : {2, 3, 5, 8, 13, 16, 17, 31, 40, 150}) {
      MatMulInput some = all;
      some.num_rows = num_rows;
      some.x.resize(num_rows * num_inputs);
      const std::vector<float> out = Run(some, *weight);
      ASSERT_EQ(std::memcmp(out.data(), alone.data(), out.size() * sizeof(float)), 0) << num_rows;
    }
  }
}

// A panel of a file's integers: codes that a seed gives, or the largest and the smallest in runs.
struct FilePanel {
  // The codes that a file may have, by their value: the first is the smallest, and the last the largest.
  static uint8_t Code(const IntegerPanels& layout, int32_t place) {
    constexpr std::array<uint8_t, 15> kOfE2m1 = {20, 24, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 38, 40, 44};
    return layout.is_e2m1 ? kOfE2m1[place] : static_cast<uint8_t>(place);
  }
  FilePanel(const IntegerPanels& layout, bool is_extreme)
      : weight(kPanelWidth, layout.num_groups * layout.group_size, layout) {
    testing::RandomValues random(5);
    const int64_t num_inputs = weight.in_features();
    std::vector<uint8_t> codes(kPanelWidth * num_inputs);
    const int32_t num_codes = layout.is_e2m1 ? 15 : 1 << layout.bits;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = Code(layout, is_extreme ? (i / 7 % 3 == 0 ? 0 : num_codes - 1) : random.Below(num_codes));
    }
    const int center = 1 << (layout.source_bits() - 1);
    const std::vector<float> scales = random.Normals(kPanelWidth * layout.num_groups);
    const std::vector<float> offsets = random.Normals(kPanelWidth * layout.num_groups);
    PackIntegers(layout, {.codes = codes.data(), .scales = scales.data(), .offsets = offsets.data()}, weight.panel(0));
    for (size_t i = 0; i < codes.size(); ++i) {
      const size_t group = i / layout.group_size;
      values.push_back(scales[group] * static_cast<float>(codes[i] - center) +
                       (layout.has_offsets ? offsets[group] : 0.0f));
    }
  }

  CpuWeight weight;
  std::vector<float> values;
};

struct FileForm {
  int bits = 0;
  bool is_e2m1 = false;
};
constexpr FileForm kFileForms[] = {{4}, {4, true}, {6}, {8}};

void PrintTo(const FileForm& form, std::ostream* out) {
  *out << form.bits << (form.is_e2m1 ? " bits of E2M1" : " bits");
}

IntegerPanels FileLayout(const ProductCase& c, const FileForm& form) {
  return {.bits = form.bits,
          .group_size = form.bits == 6 || form.is_e2m1 ? std::min(c.group_size, 32) : c.group_size,
          .num_groups = 9,  // of 128 inputs, more than a range of MatMul
          .scale_dtype = DType::kF32,
          .has_offsets = true,
          .int8_rows = c.int8_rows,
          .order = HasAvx512Integers(c.isa, c.int8_rows) ? Avx512OrderOf(c.int8_rows) : IntegerOrder::kQuads,
          .is_e2m1 = form.is_e2m1};
}

// A file's integers may come with offsets, and with scales that bf16 does not hold.
TEST_P(IntegerMatMulTest, MultipliesOffsetsAndWideScales) {
  const FilePanel panel(FileLayout(GetParam(), {GetParam().bits}), /*is_extreme=*/false);
  EXPECT_EQ(Values(panel.weight), panel.values);
  const MatMulInput input = RandomIntegerInput(9, kPanelWidth, panel.weight.in_features());
  ExpectClose(input, panel.values, Run(input, panel.weight));
}

TEST_P(IntegerMatMulTest, MultipliesCodesOf6BitsAndOfE2m1) {
  if (GetParam().group_size > 32) return;  // their groups have at most 32 inputs
  const FileForm form = GetParam().bits == 4 ? FileForm{4, true} : FileForm{6};
  for (const bool is_extreme : {false, true}) {
    const FilePanel panel(FileLayout(GetParam(), form), is_extreme);
    EXPECT_EQ(Values(panel.weight), panel.values);
    const MatMulInput input = RandomIntegerInput(19, kPanelWidth, panel.weight.in_features());
    const std::vector<float> all = Run(input, panel.weight);
    ExpectClose(input, panel.values, all);
    for (const int64_t num_rows : {1, 2, 3, 5, 8, 13, 16}) {
      MatMulInput first_rows = input;
      first_rows.num_rows = num_rows;
      const std::vector<float> some = Run(first_rows, panel.weight);
      ASSERT_EQ(some, std::vector<float>(all.begin(), all.begin() + num_rows * kPanelWidth)) << num_rows;
    }
  }
}

TEST_P(IntegerMatMulTest, ZerosAndTheSmallestValuesGiveZeros) {
  MatMulInput input = RandomIntegerInput(2, 20, 64);
  for (float& value : input.weight) value = 0;
  for (const float value : Run(input, *Prepare(input))) ASSERT_EQ(value, 0);
  for (size_t i = 0; i < input.weight.size(); ++i) input.weight[i] = i % 2 == 0 ? 1e-40f : 0;
  for (const float value : Run(input, *Prepare(input))) ASSERT_LT(std::fabs(value), 1e-36f);
  for (uint16_t& bits : input.x) bits = 1;  // the smallest bf16
  for (const float value : Run(input, *Prepare(input))) ASSERT_EQ(value, 0);
}

INSTANTIATE_TEST_SUITE_P(All, IntegerMatMulTest, ::testing::ValuesIn(ProductCases()),
                         ::testing::PrintToStringParamName());

// Values whose integers are the largest and the smallest, in runs: a sum that does not fit its bits shows.
MatMulInput ExtremeInput(int64_t num_rows, int64_t num_outputs, int64_t num_inputs) {
  MatMulInput input = {.num_rows = num_rows, .num_outputs = num_outputs, .num_inputs = num_inputs};
  for (int64_t i = 0; i < num_rows * num_inputs; ++i) input.x.push_back(Bf16FromFloat(i / 5 % 2 == 0 ? 3 : -3));
  for (int64_t i = 0; i < num_outputs * num_inputs; ++i) input.weight.push_back(i / 7 % 3 == 0 ? 0.5f : -0.5f);
  return input;
}

#if defined(__x86_64__)
// AMX's kernel on emulated tiles. AVX2's packs its rows.
MatMulKernel EmulatedAmxKernel(const IntegerPanels& panels) {
  MatMulKernel kernel = Avx2IntegerKernel(panels);
  kernel.multiply = testing::MultiplyOnEmulatedAmx;
  kernel.tile_shape = [](int64_t num_rows) { return MatMulTileShape{std::min<int64_t>(num_rows, 16), 4, 4}; };
  return kernel;
}
#endif

// Sums of int8 rows are exact integers, so every instruction set with fused multiply-adds gives the same bits.
TEST(IntegerMatMul, Int8RowsGiveTheSameBitsOnEveryInstructionSet) {
  for (const MatMulInput& input :
       {RandomIntegerInput(7, 50, 700), RandomIntegerInput(17, 20, 96), ExtremeInput(9, 40, 256)}) {
    for (const auto kept_as : {WeightQuantization::kInt8, WeightQuantization::kInt4}) {
      for (const int32_t group_size : {16, 32, 64, 128}) {
        std::map<std::string, std::vector<float>> outs;
        const auto run = [&](const std::string& name, Isa isa, const auto& kernel_of) {
          const auto pin = IsaPin::Make(isa);
          ThreadPool pool(1);
          Pages scratch;
          const ConstTensorView part = {input.weight.data(), DType::kF32, Shape(input.num_outputs, input.num_inputs)};
          const auto weight =
              PrepareWeight({.parts = {&part, 1}, .quantization = {kept_as, group_size, true}}, pool, isa);
          std::vector<float>& out = outs[name];
          out.resize(input.num_rows * input.num_outputs);
          MatMul({.x = {input.x.data(), DType::kBF16, Shape(input.num_rows, input.num_inputs)},
                  .weight = weight.get(),
                  .out = {out.data(), DType::kF32, Shape(input.num_rows, input.num_outputs)}},
                 kernel_of(*weight->integers()), scratch, pool);
        };
        for (const Isa isa : SupportedIsas()) {
          if (isa == Isa::kBaseline) continue;
          const auto kernel_of = [&](const auto& panels) -> const MatMulKernel& { return KernelOf(isa, &panels); };
          run(Name(isa), isa, kernel_of);
          run(std::string("f32 by ") + Name(isa), isa, HighwayIntegerKernel);
#if defined(__x86_64__)
          run(std::string("AMX on emulated tiles, with ") + Name(isa), isa, EmulatedAmxKernel);
#endif
        }
        for (const auto& [name, out] : outs) ASSERT_EQ(out, outs.begin()->second) << name << " " << group_size;
      }
    }
  }
}

// Runs of the largest codes and of the largest values of a row: sums of pairs that 16 bits do not hold would show.
TEST(IntegerMatMul, Int8RowsAndFileIntegersGiveTheSameBitsOnEveryInstructionSet) {
  for (const FileForm& form : kFileForms) {
    for (const int32_t group_size : {16, 32}) {
      std::vector<float> expected;
      for (const Isa isa : SupportedIsas()) {
        if (isa == Isa::kBaseline) continue;
        const ProductCase c = {.isa = isa, .int8_rows = true, .group_size = group_size};
        const FilePanel panel(FileLayout(c, form), /*is_extreme=*/true);
        const MatMulInput input = ExtremeInput(9, kPanelWidth, panel.weight.in_features());
        for (const bool is_wide : {false, true}) {
          const auto pin = IsaPin::Make(isa);
          ThreadPool pool(1);
          Pages scratch;
          std::vector<float> out(input.num_rows * kPanelWidth);
          const IntegerPanels& layout = *panel.weight.integers();
          MatMul({.x = {input.x.data(), DType::kBF16, Shape(input.num_rows, input.num_inputs)},
                  .weight = &panel.weight,
                  .out = {out.data(), DType::kF32, Shape(input.num_rows, kPanelWidth)}},
                 is_wide ? HighwayIntegerKernel(layout) : KernelOf(isa, &layout), scratch, pool);
          if (expected.empty()) expected = out;
          ASSERT_EQ(out, expected) << Name(isa) << " " << is_wide << " " << ::testing::PrintToString(form)
                                   << " in groups of " << group_size;
        }
      }
    }
  }
}

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(FORETOKEN_BYTES_TARGET)

// AVX-VNNI's vpdpbusd as its manual defines it.
struct EmulatedBytes {
  static constexpr bool kHasDots = true;
  static __m256i AddDots(__m256i sums, __m256i codes, __m256i x) {
    alignas(32) uint8_t factors[32];
    alignas(32) int8_t values[32];
    alignas(32) int32_t out[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(factors), codes);
    _mm256_store_si256(reinterpret_cast<__m256i*>(values), x);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), sums);
    for (int i = 0; i < 32; ++i) out[i / 4] += int32_t{factors[i]} * values[i];
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(out));
  }
};

HWY_POP_ATTRIBUTES

// The kernels for AVX-VNNI and AMX run here on emulations of their instructions, AMX's also with the vectors of AVX-512
// where the machine has them.
TEST(IntegerMatMul, EmulatedInstructionsGiveTheBitsOfAvx2) {
  if (std::ranges::find(SupportedIsas(), Isa::kAvx2) == SupportedIsas().end()) GTEST_SKIP() << "no AVX2";
  ThreadPool pool(1);
  Pages scratch;
  for (const FileForm& form : kFileForms) {
    for (const int32_t group_size : {16, 32, 64, 128}) {
      for (const bool is_extreme : {false, true}) {
        const ProductCase c = {.isa = Isa::kAvx2, .int8_rows = true, .group_size = group_size};
        const FilePanel panel(FileLayout(c, form), is_extreme);
        const IntegerPanels& layout = *panel.weight.integers();
        const MatMulKernel& avx2 = Avx2IntegerKernel(layout);
        const MatMulKernel amx = EmulatedAmxKernel(layout);
        for (const int64_t num_rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 40}) {
          SCOPED_TRACE(::testing::Message()
                       << ::testing::PrintToString(form) << " in groups of " << group_size << ", rows: " << num_rows);
          const int64_t num_inputs = panel.weight.in_features();
          const MatMulInput input = is_extreme ? ExtremeInput(num_rows, kPanelWidth, num_inputs)
                                               : RandomIntegerInput(num_rows, kPanelWidth, num_inputs);
          const auto product = [&](const MatMulKernel& kernel, Isa isa) {
            const auto pin = IsaPin::Make(isa);
            std::vector<float> out(num_rows * kPanelWidth);
            MatMul({.x = {input.x.data(), DType::kBF16, Shape(num_rows, num_inputs)},
                    .weight = &panel.weight,
                    .out = {out.data(), DType::kF32, Shape(num_rows, kPanelWidth)}},
                   kernel, scratch, pool);
            return out;
          };
          const std::vector<float> expected = product(avx2, Isa::kAvx2);
          ASSERT_EQ(product(vectors256::IntegerKernelOf<EmulatedBytes>(layout), Isa::kAvx2), expected);
          for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
            if (std::ranges::find(SupportedIsas(), isa) == SupportedIsas().end()) continue;
            ASSERT_EQ(product(amx, isa), expected) << Name(isa);
          }
        }
      }
    }
  }
}

#endif

}  // namespace
}  // namespace foretoken::kernels::cpu
