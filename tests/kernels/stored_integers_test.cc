// SPDX-License-Identifier: Apache-2.0
// Integers of a file that the CPU keeps as they are, in stacks of any parts. If this test fails, a quantised model is
// served with other weights than its file has.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

#include "kernels/cpu/embed.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/stored_matrix.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

// A matrix of a file: codes that name their place.
class FakeStored final : public StoredMatrix {
 public:
  FakeStored(int64_t num_rows, int64_t num_inputs, const IntegerGroups& groups, std::vector<int32_t> order = {})
      : StoredMatrix(Shape(num_rows, num_inputs)), groups_(groups), order_(std::move(order)) {
    groups_.is_reordered = !order_.empty();
  }
  std::optional<IntegerGroups> groups() const override { return groups_; }
  std::span<const int32_t> input_order() const override { return order_; }
  void ReadGroups(int64_t first_row, int64_t num_rows, uint8_t* codes, float* scales, float* offsets) const override {
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      for (int64_t i = 0; i < shape()[1]; ++i) *codes++ = Code(row, i);
      for (int64_t group = 0; group < num_groups(); ++group) {
        *scales++ = Scale(row, group);
        if (groups_.has_offsets) *offsets++ = Offset(row, group);
      }
    }
  }
  void ReadFactors(int64_t first_row, int64_t num_rows, ScaleFactors& factors) const override {
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      for (int64_t block = 0; block < num_groups() / groups_.blocks->num_groups; ++block) {
        factors.scales.push_back(F16FromFloat(BlockScale(row, block)));
        factors.minimums.push_back(F16FromFloat(BlockMinimum(row, block)));
      }
      for (int64_t group = 0; group < num_groups(); ++group) {
        factors.scale_factors.push_back(ScaleFactor(row, group));
        factors.minimum_factors.push_back(MinimumFactor(row, group));
      }
    }
  }
  // In the order of the groups.
  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      for (int64_t i = 0; i < shape()[1]; ++i) {
        const int64_t group = i / groups_.group_size;
        *values++ = Scale(row, group) * static_cast<float>(Code(row, i) - (1 << (groups_.bits - 1))) +
                    (groups_.has_offsets ? Offset(row, group) : 0.0f);
      }
    }
  }

 private:
  int64_t num_groups() const { return shape()[1] / groups_.group_size; }
  uint8_t Code(int64_t row, int64_t i) const {
    const int64_t place = row * 7 + i * 3;
    if (!groups_.is_e2m1) return static_cast<uint8_t>(place % (1 << groups_.bits));
    constexpr int kTwiceE2m1[] = {0, 1, 2, 3, 4, 6, 8, 12};
    return static_cast<uint8_t>(place % 16 < 8 ? 32 + kTwiceE2m1[place % 8] : 32 - kTwiceE2m1[place % 8]);
  }
  float Scale(int64_t row, int64_t group) const {
    if (groups_.blocks) return BlockScale(row, group / groups_.blocks->num_groups) * ScaleFactor(row, group);
    const float scale = 0.5f + static_cast<float>(row + group) / 64;
    switch (groups_.scale_dtype) {
      case DType::kBF16:
        return scale;
      case DType::kF16:
        return scale + 0x1p-9f;  // bf16 does not hold it
      default:
        return scale + 0x1p-12f;  // nor does F16
    }
  }
  float Offset(int64_t row, int64_t group) const {
    if (!groups_.blocks) return static_cast<float>(row - group) / 8;
    return static_cast<float>(groups_.blocks->zero) * Scale(row, group) -
           BlockMinimum(row, group / groups_.blocks->num_groups) * MinimumFactor(row, group);
  }
  static float BlockScale(int64_t row, int64_t block) { return 0x1p-9f + static_cast<float>(row + block * 5) / 64; }
  static float BlockMinimum(int64_t row, int64_t block) { return 0x1p-8f + static_cast<float>(row * 3 + block) / 32; }
  static int8_t ScaleFactor(int64_t row, int64_t group) { return static_cast<int8_t>((row * 5 + group * 11) % 256); }
  static int8_t MinimumFactor(int64_t row, int64_t group) { return static_cast<int8_t>((row + group * 7) % 64); }

  IntegerGroups groups_;
  std::vector<int32_t> order_;
};

struct Case {
  Isa isa = Isa::kBaseline;
  int bits = 8;
  bool int8_rows = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << Name(c.isa) << "_w" << c.bits << (c.int8_rows ? "a8" : "a16");
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const int bits : {4, 6, 8}) {
      for (const bool int8_rows : {false, true}) cases.push_back({isa, bits, int8_rows});
    }
  }
  return cases;
}

class StoredIntegersTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<float> Values(const CpuWeight& weight) {
    std::vector<float> values;
    for (const auto& part : weight.stack()) {
      const std::vector<float> of_part = Values(*part);
      values.insert(values.end(), of_part.begin(), of_part.end());
    }
    if (!weight.stack().empty()) return values;
    const int64_t num_inputs = weight.in_features();
    values.resize(weight.out_features() * num_inputs);
    for (int64_t output = 0; output < weight.out_features(); ++output) {
      ReadValues(*weight.integers(), weight.panel(output / kPanelWidth), static_cast<int>(output % kPanelWidth),
                 num_inputs, values.data() + output * num_inputs);
    }
    return values;
  }

  std::unique_ptr<CpuWeight> Prepare(std::span<const StoredPart> parts, std::optional<IndexRange> inputs = {}) {
    return PrepareWeight(
        {.stored = parts, .inputs = inputs, .quantization = {WeightQuantization::kNone, 32, GetParam().int8_rows}},
        pool_, GetParam().isa);
  }

  // Returns the product [num_rows, N] of random rows with the weight. Every element of `out` is 1 before.
  std::vector<float> Product(const CpuWeight& weight, int64_t num_rows, const MatMulArgs& args = {}) {
    std::vector<uint16_t> x;
    for (const float value : testing::RandomValues(1).Normals(num_rows * weight.in_features())) {
      x.push_back(Bf16FromFloat(value));
    }
    std::vector<float> out(num_rows * weight.out_features(), 1.0f);
    MatMulArgs product = args;
    product.x = {x.data(), DType::kBF16, Shape(num_rows, weight.in_features())};
    product.weight = &weight;
    product.out = {out.data(), DType::kF32, Shape(num_rows, weight.out_features())};
    const auto pin = IsaPin::Make(GetParam().isa);
    Pages scratch;
    MatMul(product, GetParam().isa, scratch, pool_);
    return out;
  }

  static std::vector<float> ValuesOf(const FakeStored& matrix, const IndexRange& rows, const IndexRange& inputs) {
    std::vector<float> values, whole(matrix.shape()[1]);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      matrix.ReadValues(row, 1, whole.data());
      values.insert(values.end(), whole.begin() + inputs.begin, whole.begin() + inputs.end);
    }
    return values;
  }

  ThreadPool pool_{2};
};

// Parts with and without offsets, with scales of either type, and any range of inputs: the weight keeps their values.
TEST_P(StoredIntegersTest, KeepsStoredIntegersAsTheyAre) {
  for (const int64_t group_size : {16, 48, 32, 96, 256, 768}) {
    const FakeStored first(20, 768, {GetParam().bits, group_size, false, DType::kBF16});
    const FakeStored second(9, 768, {GetParam().bits, group_size, true, DType::kF16});
    for (const IndexRange inputs : {IndexRange{0, 768}, IndexRange{192, 512}, IndexRange{736, 768}}) {
      const StoredPart parts[] = {{&first, {3, 20}}, {&second, {0, 8}}};
      const auto weight = Prepare(parts, inputs);
      ASSERT_EQ(weight->out_features(), 25);
      std::vector<float> expected = ValuesOf(first, {3, 20}, inputs);
      const std::vector<float> below = ValuesOf(second, {0, 8}, inputs);
      expected.insert(expected.end(), below.begin(), below.end());
      EXPECT_EQ(Values(*weight), expected) << group_size << " from " << inputs.begin;
    }
  }
}

// The K types of GGUF. A rank's inputs that do not begin with a block have the products themselves as scales.
TEST_P(StoredIntegersTest, KeepsFactorsOfScales) {
  constexpr int64_t kRows = 21, kInputs = 1024;
  for (const bool has_offsets : {false, true}) {
    for (const int64_t group_size : {16, 32}) {
      const FakeStored stored(kRows, kInputs,
                              {.bits = GetParam().bits,
                               .group_size = group_size,
                               .has_offsets = has_offsets,
                               .blocks = ScaleBlocks{.num_groups = 256 / group_size, .zero = 8}});
      const StoredPart part = {&stored, {1, kRows}};
      for (const IndexRange inputs :
           {IndexRange{0, kInputs}, IndexRange{256, 512 + 32}, IndexRange{512 + 32, kInputs}}) {
        const auto weight = Prepare({&part, 1}, inputs);
        EXPECT_EQ(weight->integers()->blocks.has_value(), inputs.begin % 256 == 0);
        EXPECT_EQ(Values(*weight), ValuesOf(stored, part.rows, inputs)) << group_size << " from " << inputs.begin;
      }
      const double block_bits = (2 * 16.0 + 256 / group_size * 8 * (has_offsets ? 2 : 1)) / 256;
      EXPECT_EQ(Prepare({&part, 1})->num_bytes() * 8, 32 * kInputs * (GetParam().bits + block_bits));
    }
  }
}

// A product reads factors as it reads the scales that they make: to the last bit.
TEST_P(StoredIntegersTest, MultipliesFactorsLikeTheirProducts) {
  for (const bool has_offsets : {false, true}) {
    IntegerGroups groups = {.bits = GetParam().bits, .group_size = 32, .has_offsets = has_offsets};
    groups.blocks = {.num_groups = 8, .zero = 8};
    const FakeStored stored(40, 768, groups);
    const StoredPart part = {&stored, {0, 40}};
    const auto factored = Prepare({&part, 1});
    IntegerPanels layout = *factored->integers();
    ASSERT_TRUE(layout.blocks.has_value());
    layout.blocks.reset();
    layout.scale_dtype = DType::kF32;
    CpuWeight plain(40, 768, layout);
    for (int64_t panel = 0; panel < plain.num_panels(); ++panel) {
      GroupedRows rows(kPanelWidth, 768, {.bits = groups.bits, .group_size = 32, .has_offsets = has_offsets});
      CopyIntegers(part, {panel * kPanelWidth, std::min<int64_t>((panel + 1) * kPanelWidth, 40)}, {0, 768}, 0, rows);
      PackIntegers(layout, {.codes = rows.codes.data(), .scales = rows.scales.data(), .offsets = rows.offsets.data()},
                   plain.panel(panel));
    }
    EXPECT_LT(factored->num_bytes(), plain.num_bytes());
    for (const int64_t num_rows : {1, 2, 7, 40}) EXPECT_EQ(Product(*factored, num_rows), Product(plain, num_rows));
  }
}

// MXFP4: codes of 6 bits that take 4 have the values of the others and, to the last bit, their products.
TEST_P(StoredIntegersTest, KeepsValuesOfE2m1In4Bits) {
  if (GetParam().bits != 6) return;  // of the file
  constexpr int64_t kRows = 41, kInputs = 768;
  for (const int64_t group_size : {32, 48}) {
    IntegerGroups groups = {.bits = 6, .group_size = group_size, .scale_dtype = DType::kBF16, .is_e2m1 = true};
    const FakeStored stored(kRows, kInputs, groups);
    groups.is_e2m1 = false;
    // The same codes, for which 6 bits are kept because of another part.
    const FakeStored other(kPanelWidth, kInputs, groups);
    for (const IndexRange inputs : {IndexRange{0, kInputs}, IndexRange{192, 512}, IndexRange{16, 80}}) {
      const StoredPart part = {&stored, {1, kRows}};
      const StoredPart parts[] = {part, {&other, {0, kPanelWidth}}};
      const auto narrow = Prepare({&part, 1}, inputs), wide = Prepare(parts, inputs);
      ASSERT_TRUE(narrow->integers()->is_e2m1);
      ASSERT_FALSE(wide->integers()->is_e2m1);
      EXPECT_EQ(Values(*narrow), ValuesOf(stored, part.rows, inputs)) << group_size << " from " << inputs.begin;
      for (const int64_t num_rows : {1, 2, 3, 7, 8, 16, 40}) {
        const std::vector<float> by_4_bits = Product(*narrow, num_rows), by_6_bits = Product(*wide, num_rows);
        for (int64_t row = 0; row < num_rows; ++row) {
          for (int64_t output = 0; output < kRows - 1; ++output) {
            ASSERT_EQ(by_4_bits[row * (kRows - 1) + output], by_6_bits[row * wide->out_features() + output])
                << num_rows << " rows, output " << output << ", from " << inputs.begin;
          }
        }
      }
    }
  }
  const FakeStored matrix(48, kInputs, {.bits = 6, .group_size = 32, .scale_dtype = DType::kBF16, .is_e2m1 = true});
  const StoredPart all = {&matrix, {0, 48}};
  EXPECT_EQ(Prepare({&all, 1})->num_bytes() * 8, 48 * kInputs * 4.5);
}

// q and k of 4 bits in groups of 32 above v of 6 bits in groups of 16, as in many GGUF files.
TEST_P(StoredIntegersTest, KeepsPartsOfDifferentGroupsApart) {
  const FakeStored four(48, 512, {.bits = 4, .group_size = 32, .has_offsets = true, .blocks = ScaleBlocks{8, 8}});
  const FakeStored six(25, 512, {.bits = 6, .group_size = 16, .blocks = ScaleBlocks{16, 0}});
  const StoredPart parts[] = {{&four, {0, 16}}, {&four, {16, 48}}, {&six, {0, 25}}};
  const auto weight = Prepare(parts), q_and_k = Prepare(std::span(parts).first(2)),
             v = Prepare(std::span(parts).last(1));
  ASSERT_EQ(weight->stack().size(), 2u);
  EXPECT_EQ(weight->out_features(), 73);
  EXPECT_EQ(weight->num_bytes(), q_and_k->num_bytes() + v->num_bytes());
  std::vector<float> expected = ValuesOf(four, {0, 48}, {0, 512});
  const std::vector<float> below = ValuesOf(six, {0, 25}, {0, 512});
  expected.insert(expected.end(), below.begin(), below.end());
  EXPECT_EQ(Values(*weight), expected);

  std::vector<float> bias(73);
  std::iota(bias.begin(), bias.end(), 0.0f);
  for (const OutputMode mode : {OutputMode::kStore, OutputMode::kAdd}) {
    for (const int64_t num_rows : {1, 3, 40}) {
      const std::vector<float> out = Product(*weight, num_rows, {.bias = bias.data(), .mode = mode});
      const std::vector<float> upper = Product(*q_and_k, num_rows, {.bias = bias.data(), .mode = mode});
      const std::vector<float> lower = Product(*v, num_rows, {.bias = bias.data() + 48, .mode = mode});
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t row = i / 73, column = i % 73;
        ASSERT_EQ(out[i], column < 48 ? upper[row * 48 + column] : lower[row * 25 + column - 48]) << i;
      }
    }
  }
}

// Where a part does not end with a panel, the stack has common groups.
TEST_P(StoredIntegersTest, KeepsStoredIntegersOfDifferentBitsInOneStack) {
  const FakeStored four(20, 96, {4, 32, true, DType::kF32}), eight(9, 96, {8, 16, false, DType::kF32});
  for (const int64_t first_input : {0, 48}) {
    const StoredPart parts[] = {{&four, {1, 19}}, {&eight, {0, 9}}};
    const auto weight = Prepare(parts, IndexRange{first_input, 96});
    ASSERT_TRUE(weight->stack().empty());
    EXPECT_EQ(weight->integers()->bits, 8);
    EXPECT_EQ(weight->integers()->group_size, 16);
    std::vector<float> expected = ValuesOf(four, {1, 19}, {first_input, 96});
    const std::vector<float> below = ValuesOf(eight, {0, 9}, {first_input, 96});
    expected.insert(expected.end(), below.begin(), below.end());
    EXPECT_EQ(Values(*weight), expected);
  }
}

// GPTQ's desc_act: the groups are of inputs that do not stand side by side.
TEST_P(StoredIntegersTest, TakesInputsInTheOrderOfTheGroups) {
  constexpr int64_t kInputs = 192, kRows = 9, kOutputs = 20;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < kInputs; ++i) order.push_back(i * 37 % kInputs);
  const IntegerGroups groups = {GetParam().bits, 32, true, DType::kF32};
  const FakeStored as_written(kOutputs, kInputs, groups), reordered(kOutputs, kInputs, groups, order);
  const auto prepare = [&](const FakeStored& matrix) {
    const StoredPart part = {&matrix, {0, kOutputs}};
    return Prepare({&part, 1});
  };
  const auto plain = prepare(as_written), weight = prepare(reordered);
  std::vector<uint16_t> x, x_in_order;
  for (const float value : testing::RandomValues(1).Normals(kRows * kInputs)) x.push_back(Bf16FromFloat(value));
  for (size_t i = 0; i < x.size(); ++i) x_in_order.push_back(x[i / kInputs * kInputs + order[i % kInputs]]);
  const auto pin = IsaPin::Make(GetParam().isa);
  const auto product = [&](const CpuWeight& of, std::vector<uint16_t>& rows) {
    std::vector<float> out(kRows * kOutputs);
    Pages scratch;
    MatMul({.x = {rows.data(), DType::kBF16, Shape(kRows, kInputs)},
            .weight = &of,
            .out = {out.data(), DType::kF32, Shape(kRows, kOutputs)}},
           KernelOf(GetParam().isa, of.integers()), scratch, pool_);
    return out;
  };
  EXPECT_EQ(product(*weight, x), product(*plain, x_in_order));
  EXPECT_NE(product(*weight, x), product(*plain, x)) << "the order matters";

  const std::vector<int32_t> ids = {7, 0};
  const auto embed = [&](const CpuWeight& of) {
    std::vector<float> out(ids.size() * kInputs);
    Embed({.weight = &of, .token_ids = ids.data(), .out = {out.data(), DType::kF32, Shape(2, kInputs)}}, pool_);
    return out;
  };
  const std::vector<float> embedded = embed(*weight), in_order = embed(*plain);
  for (size_t i = 0; i < embedded.size(); ++i) {
    ASSERT_EQ(embedded[i / kInputs * kInputs + order[i % kInputs]], in_order[i]) << i;
  }
}

TEST(CommonGroups, AreOfOneOrder) {
  std::vector<int32_t> order(64);
  std::iota(order.rbegin(), order.rend(), 0);
  const IntegerGroups groups = {4, 32, false, DType::kBF16};
  const FakeStored plain(4, 64, groups), reordered(4, 64, groups, order), alike(2, 64, groups, order);
  const StoredPart equal[] = {{&reordered, {0, 4}}, {&alike, {0, 2}}},
                   mixed[] = {{&reordered, {0, 4}}, {&plain, {0, 4}}};
  EXPECT_TRUE(CommonGroups(equal).value().is_reordered);
  EXPECT_FALSE(CommonGroups(mixed).has_value());
}

TEST(CommonGroups, HoldWhatAnyPartNeeds) {
  const FakeStored plain(4, 64, {4, 32, false, DType::kBF16}), offset(4, 64, {4, 32, true, DType::kBF16});
  const FakeStored wide(4, 64, {8, 32, false, DType::kBF16}), large(4, 64, {4, 64, false, DType::kBF16});
  const FakeStored half(4, 64, {4, 32, false, DType::kF16}), fives(4, 80, {4, 80, false, DType::kBF16});
  const auto common = [](const FakeStored& a, const FakeStored& b) {
    const StoredPart parts[] = {{&a, {0, 4}}, {&b, {0, 4}}};
    return CommonGroups(parts);
  };
  EXPECT_EQ(common(plain, offset), (IntegerGroups{4, 32, true, DType::kBF16}));
  EXPECT_EQ(common(plain, half), (IntegerGroups{4, 32, false, DType::kF32}));
  EXPECT_EQ(common(plain, wide), (IntegerGroups{8, 32, false, DType::kBF16}));
  EXPECT_EQ(common(large, plain), (IntegerGroups{4, 32, false, DType::kBF16}));
  EXPECT_EQ(common(fives, large), (IntegerGroups{4, 16, false, DType::kBF16}));
  const IntegerGroups in_blocks = {.bits = 6, .group_size = 16, .blocks = ScaleBlocks{4, 0}};
  const IntegerGroups of_e2m1 = {.bits = 6, .group_size = 32, .is_e2m1 = true};
  const FakeStored e2m1(4, 64, of_e2m1), sixes(4, 64, {.bits = 6, .group_size = 32});
  EXPECT_EQ(common(e2m1, e2m1), of_e2m1);
  EXPECT_EQ(common(e2m1, sixes), (IntegerGroups{.bits = 6, .group_size = 32}));
  EXPECT_EQ(common(sixes, e2m1), (IntegerGroups{.bits = 6, .group_size = 32}));
  const FakeStored blocks(4, 64, in_blocks),
      other_blocks(4, 64, {.bits = 6, .group_size = 16, .blocks = ScaleBlocks{2, 0}});
  EXPECT_EQ(common(blocks, blocks), in_blocks);
  EXPECT_EQ(common(blocks, other_blocks), (IntegerGroups{.bits = 6, .group_size = 16}));
  EXPECT_EQ(common(wide, blocks), (IntegerGroups{.bits = 8, .group_size = 16}));
}

INSTANTIATE_TEST_SUITE_P(All, StoredIntegersTest, ::testing::ValuesIn(Cases()), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace foretoken::kernels::cpu
