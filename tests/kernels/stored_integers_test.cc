// SPDX-License-Identifier: Apache-2.0
// Integers of a file that the CPU keeps as they are, in stacks of any parts. If this test fails, a quantised model is
// served with other weights than its file has.
#include <gtest/gtest.h>

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
      for (int64_t group = 0; group < shape()[1] / groups_.group_size; ++group) {
        *scales++ = Scale(row, group);
        if (groups_.has_offsets) *offsets++ = Offset(row, group);
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
  uint8_t Code(int64_t row, int64_t i) const { return static_cast<uint8_t>((row * 7 + i * 3) % (1 << groups_.bits)); }
  float Scale(int64_t row, int64_t group) const {
    const float scale = 0.5f + static_cast<float>(row + group) / 64;  // bf16 holds it
    return groups_.scale_dtype == DType::kBF16 ? scale : scale + 0x1p-12f;
  }
  static float Offset(int64_t row, int64_t group) { return static_cast<float>(row - group) / 8; }

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
    for (const int bits : {4, 8}) {
      for (const bool int8_rows : {false, true}) cases.push_back({isa, bits, int8_rows});
    }
  }
  return cases;
}

class StoredIntegersTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<float> Values(const CpuWeight& weight) {
    const int64_t num_inputs = weight.in_features();
    std::vector<float> values(weight.out_features() * num_inputs);
    for (int64_t output = 0; output < weight.out_features(); ++output) {
      ReadValues(*weight.integers(), weight.panel(output / kPanelWidth), static_cast<int>(output % kPanelWidth),
                 num_inputs, values.data() + output * num_inputs);
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
      const auto weight = PrepareWeight(
          {.stored = parts, .inputs = inputs, .quantization = {WeightQuantization::kNone, 32, GetParam().int8_rows}},
          pool_, GetParam().isa);
      ASSERT_EQ(weight->out_features(), 25);
      std::vector<float> expected, whole(768);
      for (int64_t row = 0; row < 25; ++row) {
        row < 17 ? first.ReadValues(3 + row, 1, whole.data()) : second.ReadValues(row - 17, 1, whole.data());
        expected.insert(expected.end(), whole.begin() + inputs.begin, whole.begin() + inputs.end);
      }
      EXPECT_EQ(Values(*weight), expected) << group_size << " from " << inputs.begin;
    }
  }
}

// q and k of 4 bits in groups of 32 beside v of 8 bits in groups of 16, as in many GGUF files.
TEST_P(StoredIntegersTest, KeepsStoredIntegersOfDifferentBitsInOneStack) {
  const FakeStored four(20, 96, {4, 32, true, DType::kF32}), eight(9, 96, {8, 16, false, DType::kF32});
  for (const int64_t first_input : {0, 48}) {
    const StoredPart parts[] = {{&four, {1, 19}}, {&eight, {0, 9}}};
    const auto weight = PrepareWeight({.stored = parts,
                                       .inputs = IndexRange{first_input, 96},
                                       .quantization = {WeightQuantization::kNone, 32, GetParam().int8_rows}},
                                      pool_, GetParam().isa);
    EXPECT_EQ(weight->integers()->bits, 8);
    EXPECT_EQ(weight->integers()->group_size, 16);
    std::vector<float> expected, whole(96);
    for (int64_t row = 0; row < 27; ++row) {
      row < 18 ? four.ReadValues(1 + row, 1, whole.data()) : eight.ReadValues(row - 18, 1, whole.data());
      expected.insert(expected.end(), whole.begin() + first_input, whole.end());
    }
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
    return PrepareWeight({.stored = {&part, 1}, .quantization = {WeightQuantization::kNone, 32, GetParam().int8_rows}},
                         pool_, GetParam().isa);
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
}

INSTANTIATE_TEST_SUITE_P(All, StoredIntegersTest, ::testing::ValuesIn(Cases()), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace foretoken::kernels::cpu
