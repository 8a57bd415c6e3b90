// SPDX-License-Identifier: Apache-2.0
// The ops that work row by row, against tests/reference, and a row's independence from its neighbours. If this test
// fails, a GPU server emits wrong tokens, or tokens that depend on other requests.
//
// Tolerances: u = 2^-24 is f32's unit roundoff, b = 2^-8 that of bf16 (8 significant bits, rounded to nearest). A sum
// of n terms of one sign has a relative error of at most n u. Each further operation adds u, and an exponential of 1
// ulp adds 2 u.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/quantize.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/reference/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::RandomValues;

constexpr double kUnit = 0x1p-24;
constexpr double kBf16Unit = 0x1p-8;

TensorView View(std::vector<float>& values, int64_t rows, int64_t columns) {
  return {values.data(), DType::kF32, Shape(rows, columns)};
}
TensorView View(std::vector<uint16_t>& values, int64_t rows, int64_t columns) {
  return {values.data(), DType::kBF16, Shape(rows, columns)};
}

using EmbedTest = OnDevice;
using RmsNormTest = OnDevice;
using MeanSquaresTest = OnDevice;
using GluTest = OnDevice;

TEST_F(EmbedTest, TakesTheRowsThatTheIdsName) {
  for (const int64_t num_columns : {1, 255, 700}) {
    const std::vector<float> rows = RandomValues(1).Normals(9 * num_columns);
    const auto weight = Prepare({rows.data(), DType::kF32, Shape(9, num_columns)});
    const std::vector<int32_t> token_ids = {8, 0, 3, 3};
    std::vector<float> out(4 * num_columns);
    RunEmbed({.weight = weight.get(), .token_ids = token_ids.data(), .out = View(out, 4, num_columns)});
    for (int64_t i = 0; i < 4 * num_columns; ++i) {
      const float value = rows[token_ids[i / num_columns] * num_columns + i % num_columns];
      ASSERT_EQ(out[i], FloatFromBf16(Bf16FromFloat(value))) << i;
    }
  }
}

TEST_F(RmsNormTest, MatchesTheReference) {
  for (const int64_t num_columns : {1, 7, 255, 256, 257, 576, 4096}) {
    RandomValues random(1);
    const int64_t num_rows = 5;
    std::vector<float> x = random.Normals(num_rows * num_columns, 3), gain = random.Normals(num_columns);
    const std::vector<int32_t> rows = {4, 0, 2};
    std::vector<uint16_t> out(rows.size() * num_columns);
    const RmsNormArgs args{.x = View(x, num_rows, num_columns),
                           .rows = rows.data(),
                           .gain = gain.data(),
                           .eps = 1e-5f,
                           .out = View(out, 3, num_columns)};
    RunRmsNorm(args);
    const std::vector<double> expected = reference::RmsNorm(args);
    // Sum of squares (halved by the root), root, division, two products, bf16.
    const double tolerance = (num_columns / 2.0 + 6) * kUnit + kBf16Unit;
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(FloatFromBf16(out[i]), expected[i], tolerance * std::abs(expected[i])) << num_columns << " " << i;
    }
  }
}

TEST_F(RmsNormTest, AddsToRowsOfF32) {
  for (const int64_t num_columns : {1, 17, 257, 576}) {
    RandomValues random(7);
    const int64_t num_rows = 4;
    std::vector<float> x = random.Normals(num_rows * num_columns, 3), gain = random.Normals(num_columns);
    std::vector<float> out = random.Normals(num_rows * num_columns);
    const std::vector<float> before = out;
    const RmsNormArgs args{.x = View(x, num_rows, num_columns),
                           .gain = gain.data(),
                           .eps = 1e-5f,
                           .mode = OutputMode::kAdd,
                           .out = View(out, num_rows, num_columns)};
    RunRmsNorm(args);
    const std::vector<double> expected = reference::RmsNorm(args);
    // As above, without bf16, and the addition.
    const double tolerance = (num_columns / 2.0 + 6) * kUnit;
    for (size_t i = 0; i < out.size(); ++i) {
      const double sum = before[i] + expected[i];
      ASSERT_NEAR(out[i], sum, tolerance * std::abs(expected[i]) + kUnit * std::abs(sum)) << num_columns << " " << i;
    }
  }
}

TEST_F(RmsNormTest, DoesNotDependOnOtherRowsOrOnTheList) {
  RandomValues random(2);
  const int64_t num_rows = 40, num_columns = 333;
  std::vector<float> x = random.Normals(num_rows * num_columns), gain = random.Normals(num_columns);
  std::vector<uint16_t> all(num_rows * num_columns), alone(num_columns);
  const TensorView view = View(x, num_rows, num_columns);
  RunRmsNorm({.x = view, .gain = gain.data(), .out = View(all, num_rows, num_columns)});
  for (int32_t row = 0; row < num_rows; ++row) {
    RunRmsNorm({.x = view, .rows = &row, .gain = gain.data(), .out = View(alone, 1, num_columns)});
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * num_columns)) << row;
  }
}

TEST_F(MeanSquaresTest, MatchTheReferenceAndDoNotDependOnOtherRows) {
  for (const std::array<int64_t, 2> widths : {std::array<int64_t, 2>{1, 1}, {7, 256}, {600, 100}}) {
    const int64_t num_rows = 4, num_columns = widths[0] + widths[1] + 3;
    std::vector<float> x = RandomValues(8).Normals(num_rows * num_columns, 3), out(2 * num_rows), alone(2);
    RunMeanSquares({.x = View(x, num_rows, num_columns), .widths = widths, .out = View(out, num_rows, 2)});
    for (int64_t row = 0; row < num_rows; ++row) {
      const float* value = x.data() + row * num_columns;
      for (size_t part = 0; part < 2; ++part) {
        double mean = 0;
        for (int64_t i = 0; i < widths[part]; ++i, ++value) mean += double{*value} * *value / widths[part];
        ASSERT_NEAR(out[2 * row + part], mean, (widths[part] + 1) * kUnit * mean) << row << " " << part;
      }
      const TensorView view{x.data() + row * num_columns, DType::kF32, Shape(1, num_columns)};
      RunMeanSquares({.x = view, .widths = widths, .out = View(alone, 1, 2)});
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + 2 * row)) << row;
    }
  }
}

constexpr Gating kGatings[] = {
    {.activation = Activation::kSigmoid},
    {.activation = Activation::kSilu},
    {.activation = Activation::kGeluTanh},
    {.activation = Activation::kSilu, .is_interleaved = true},
    {.activation = Activation::kGeluQuick},
    {.activation = Activation::kGeluQuick, .limit = 7.0f, .up_offset = 1, .is_interleaved = true}};

// Exponential, sum, division, product, bf16. Values below exp(-88) may be any number as small. The exponent of gelu
// with tanh has an error of 4 u of its own size, and that of the quick gelu one of u.
double GluTolerance(const GluArgs& args, size_t i) {
  const int64_t num_columns = args.out.shape[1], row = static_cast<int64_t>(i) / num_columns;
  const int64_t column = static_cast<int64_t>(i) % num_columns * (args.gating.is_interleaved ? 2 : 1);
  const double gate = args.gate_up.as<float>()[row * 2 * num_columns + column];
  const Activation activation = args.gating.activation;
  const double exponent = activation == Activation::kSilu || activation == Activation::kSigmoid ? 0
                          : activation == Activation::kGeluQuick
                              ? std::abs(gate)
                              : 1.6 * (std::abs(gate) + 0.045 * std::pow(std::abs(gate), 3));
  return (5 + 4 * std::min(exponent, 88.0)) * kUnit + kBf16Unit;
}

TEST_F(GluTest, MatchesTheReferenceForLargeAndSmallGates) {
  for (const int64_t num_columns : {1, 255, 256, 1100}) {
    RandomValues random(3);
    const int64_t num_rows = 9;
    std::vector<float> gate_up = random.Normals(num_rows * 2 * num_columns, 20);
    gate_up[0] = -120;
    gate_up.back() = 1000;
    std::vector<uint16_t> out(num_rows * num_columns);
    for (const Gating& gating : kGatings) {
      const GluArgs args{.gate_up = View(gate_up, num_rows, 2 * num_columns),
                         .gating = gating,
                         .out = View(out, num_rows, num_columns)};
      RunGlu(args);
      const std::vector<double> expected = reference::Glu(args);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(FloatFromBf16(out[i]), expected[i], GluTolerance(args, i) * std::abs(expected[i]) + 1e-33) << i;
      }
    }
  }
}

TEST_F(GluTest, ShowsAValueThatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> gate_up = {nan, 1, 1, nan, 1, 1};
  std::vector<uint16_t> out(3);
  for (const Gating& gating : kGatings) {
    if (!gating.is_interleaved) continue;
    RunGlu({.gate_up = View(gate_up, 1, 6), .gating = gating, .out = View(out, 1, 3)});
    EXPECT_TRUE(std::isnan(FloatFromBf16(out[0])) && std::isnan(FloatFromBf16(out[1])));
    EXPECT_FALSE(std::isnan(FloatFromBf16(out[2])));
  }
}

TEST_F(GluTest, DoesNotDependOnOtherRows) {
  const int64_t num_rows = 7, num_columns = 300;
  std::vector<float> gate_up = RandomValues(4).Normals(num_rows * 2 * num_columns, 3);
  std::vector<uint16_t> all(num_rows * num_columns), alone(num_columns);
  RunGlu({.gate_up = View(gate_up, num_rows, 2 * num_columns), .out = View(all, num_rows, num_columns)});
  for (int64_t row = 0; row < num_rows; ++row) {
    const ConstTensorView view{gate_up.data() + row * 2 * num_columns, DType::kF32, Shape(1, 2 * num_columns)};
    RunGlu({.gate_up = view, .out = View(alone, 1, num_columns)});
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * num_columns)) << row;
  }
}

struct RopeShape {
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  bool has_gains;
  std::optional<int32_t> rotary_dim = std::nullopt;
  bool has_whole_norms = false;
  KvCacheDtype dtype = KvCacheDtype::kBf16;
};

// Rows at random positions, with the tensors that RopeStoreKv reads and writes for them.
class RopeRows {
 public:
  static constexpr int32_t kNumPositions = 50;

  RopeRows(const RopeShape& shape, const std::vector<int32_t>& positions, const std::vector<int32_t>& slots)
      : shape_(shape), positions_(positions), slots_(slots), random_(4) {
    const size_t num_rows = positions.size();
    qkv_ = random_.Normals(num_rows * num_columns());
    for (int32_t i = 0; i < kNumPositions * shape.head_dim / 2; ++i) {
      const double angle = random_.Uniform() * 6.28;
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
    q_gain_ = random_.Normals(shape.num_heads * shape.head_dim);
    k_gain_ = random_.Normals(shape.num_kv_heads * shape.head_dim);
    for (size_t i = 0; i < 2 * num_rows; ++i) mean_squares_.push_back(0.25f + static_cast<float>(i));
    q_.resize(num_rows * shape.num_heads * shape.head_dim);
    kv_ = {.num_layers = 2,
           .num_blocks = 4,
           .num_kv_heads = shape.num_kv_heads,
           .head_dim = shape.head_dim,
           .dtype = shape.dtype};
    cache_.resize(kv_.num_bytes() / 2);
  }

  RopeStoreKvArgs Args() {
    kv_.data = cache_.data();
    const auto num_rows = static_cast<int32_t>(positions_.size());
    return {.qkv = View(qkv_, num_rows, num_columns()),
            .q_gain = shape_.has_gains ? q_gain_.data() : nullptr,
            .k_gain = shape_.has_gains ? k_gain_.data() : nullptr,
            .mean_squares = shape_.has_whole_norms ? mean_squares_.data() : nullptr,
            .eps = 1e-6f,
            .rotary_dim = shape_.rotary_dim,
            .cos = cos_.data(),
            .sin = sin_.data(),
            .batch = {.num_rows = num_rows, .positions = positions_.data(), .slots = slots_.data()},
            .kv = kv_,
            .layer = 1,
            .q = View(q_, num_rows, shape_.num_heads * shape_.head_dim)};
  }

  // Row `row` alone, before anything is written.
  RopeRows Alone(int32_t row) const {
    RopeRows alone = *this;
    alone.positions_ = {positions_[row]};
    alone.slots_ = {slots_[row]};
    alone.mean_squares_ = {mean_squares_[2 * row], mean_squares_[2 * row + 1]};
    alone.qkv_.assign(qkv_.begin() + row * num_columns(), qkv_.begin() + (row + 1) * num_columns());
    alone.q_.assign(shape_.num_heads * shape_.head_dim, 0);
    std::fill(alone.cache_.begin(), alone.cache_.end(), 0);
    return alone;
  }

  std::vector<float>& qkv() { return qkv_; }
  std::vector<float> QOfRow(int32_t row) const {
    const int64_t width = int64_t{shape_.num_heads} * shape_.head_dim;
    return {q_.begin() + row * width, q_.begin() + (row + 1) * width};
  }
  // The slot's elements in both layers, K and V, all heads.
  std::vector<uint16_t> CacheOfSlot(int32_t slot) const {
    KvCacheView kv = kv_;
    kv.data = const_cast<uint16_t*>(cache_.data());
    std::vector<uint16_t> elements;
    for (int32_t part = 0; part < 4; ++part) {
      for (int32_t i = 0; i < shape_.num_kv_heads * shape_.head_dim; ++i) {
        elements.push_back(
            reference::CacheElement(kv, part / 2, part % 2, slot, i / shape_.head_dim, i % shape_.head_dim));
      }
    }
    return elements;
  }

 private:
  int64_t num_columns() const { return int64_t{1} * (shape_.num_heads + 2 * shape_.num_kv_heads) * shape_.head_dim; }

  RopeShape shape_;
  std::vector<int32_t> positions_, slots_;
  RandomValues random_;
  std::vector<float> qkv_, cos_, sin_, q_gain_, k_gain_, mean_squares_, q_;
  KvCacheView kv_;
  std::vector<uint16_t> cache_;
};

class RopeStoreKvTest : public OnDevice {
 protected:
  void Check(const RopeShape& shape) {
    const std::vector<int32_t> slots = {63, 0, 17, 16, 40};
    RopeRows rows(shape, {0, 49, 7, 7, 3}, slots);
    RunRopeStoreKv(rows.Args(), RopeRows::kNumPositions);
    const reference::RotatedRows expected = reference::RopeStoreKv(rows.Args());
    // The norm as in RmsNorm, then |x cos| + |y sin|, which is at most the pair's length. The rotation keeps that
    // length.
    double largest = 0;
    for (const double value : expected.q) largest = std::max(largest, std::abs(value));
    for (const double value : expected.k) largest = std::max(largest, std::abs(value));
    const double tolerance = (shape.head_dim / 2.0 + 10) * kUnit * std::sqrt(2.0) * largest;
    const size_t q_width = expected.q.size() / 5, kv_width = expected.k.size() / 5;
    for (size_t row = 0; row < 5; ++row) {
      const std::vector<float> q = rows.QOfRow(static_cast<int32_t>(row));
      for (size_t i = 0; i < q_width; ++i) ASSERT_NEAR(q[i], expected.q[row * q_width + i], tolerance) << row;
      const std::vector<uint16_t> cached = rows.CacheOfSlot(slots[row]);
      for (size_t i = 0; i < kv_width; ++i) {
        const double k = expected.k[row * kv_width + i], v = expected.v[row * kv_width + i];
        ASSERT_EQ(cached[i] | cached[kv_width + i], 0) << "another layer was written";
        ASSERT_NEAR(FloatFromBf16(cached[2 * kv_width + i]), k, tolerance + kBf16Unit * std::abs(k)) << row;
        ASSERT_EQ(cached[3 * kv_width + i], Bf16FromFloat(static_cast<float>(v))) << row;
      }
    }
  }
};

TEST_F(RopeStoreKvTest, MatchesTheReference) {
  for (const RopeShape& shape :
       {RopeShape{1, 1, 2, false}, RopeShape{4, 2, 16, true}, RopeShape{3, 1, 6, true}, RopeShape{8, 2, 64, false},
        RopeShape{2, 2, 80, true}, RopeShape{2, 1, 128, true}, RopeShape{2, 1, 256, true},
        RopeShape{4, 2, 16, true, 12}, RopeShape{2, 1, 80, false, 2}, RopeShape{4, 2, 16, true, 0},
        RopeShape{6, 2, 20, true, std::nullopt, true}}) {
    Check(shape);
  }
}

TEST_F(RopeStoreKvTest, DoesNotDependOnOtherRows) {
  const std::vector<int32_t> slots = {63, 0, 17, 16, 40};
  for (const bool has_whole_norms : {false, true}) {
    RopeRows rows({4, 2, 80, true, std::nullopt, has_whole_norms}, {0, 49, 7, 7, 3}, slots);
    RunRopeStoreKv(rows.Args(), RopeRows::kNumPositions);
    for (int32_t row = 0; row < 5; ++row) {
      RopeRows alone = rows.Alone(row);
      RunRopeStoreKv(alone.Args(), RopeRows::kNumPositions);
      ASSERT_EQ(alone.QOfRow(0), rows.QOfRow(row));
      ASSERT_EQ(alone.CacheOfSlot(slots[row]), rows.CacheOfSlot(slots[row]));
    }
  }
}

// K that is not rotated, and V, have the codes and the scale that a CPU gives them, a row with a value that is not
// finite and a row of zeros, too.
TEST_F(RopeStoreKvTest, StoresTheCodesOfTheCpu) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kFp8}) {
    for (const int32_t head_dim : {2, 6, 64, 80}) {
      const std::vector<int32_t> slots = {63, 0, 17, 16, 40};
      RopeRows rows({.num_heads = 3, .num_kv_heads = 2, .head_dim = head_dim, .rotary_dim = 0, .dtype = dtype},
                    {0, 49, 7, 7, 3}, slots);
      const int32_t num_columns = 7 * head_dim;
      rows.qkv()[1 * num_columns + 3 * head_dim + 1] = std::numeric_limits<float>::infinity();
      std::fill_n(rows.qkv().begin() + int64_t{2} * num_columns, num_columns, 0.0f);
      RunRopeStoreKv(rows.Args(), RopeRows::kNumPositions);
      const KvCacheView kv = rows.Args().kv;
      for (int32_t i = 0; i < 5 * 2 * 2; ++i) {
        const int32_t row = i / 4, part = i / 2 % 2, head = i % 2;
        const float* values = rows.qkv().data() + row * num_columns + (3 + part * 2 + head) * head_dim;
        std::vector<uint8_t> codes(head_dim);
        const float scale = QuantizeKv(dtype, values, head_dim, codes.data());
        const uint8_t* elements = kv.elements(1, part, slots[row], head);
        EXPECT_EQ(std::vector<uint8_t>(elements, elements + head_dim), codes) << "row " << row << " part " << part;
        EXPECT_EQ(std::bit_cast<uint32_t>(*kv.scale(1, part, slots[row], head)), std::bit_cast<uint32_t>(scale))
            << "row " << row << " part " << part << " D " << head_dim;
      }
    }
  }
}

class MoveKvTest : public OnDevice {
 protected:
  // Every target slot must hold its source's old elements, in all layers, and every other slot its own.
  void Check(int32_t num_blocks, const std::vector<KvMove>& moves, KvCacheDtype dtype = KvCacheDtype::kBf16) {
    KvCacheView kv{.num_layers = 3, .num_blocks = num_blocks, .num_kv_heads = 2, .head_dim = 80, .dtype = dtype};
    std::vector<uint16_t> cache(kv.num_bytes() / 2);
    std::iota(cache.begin(), cache.end(), uint16_t{0});
    std::vector<uint16_t> before = cache;
    kv.data = cache.data();
    KvCacheView old = kv;
    old.data = before.data();
    RunMoveKv({.kv = kv, .moves = moves});
    std::vector<int32_t> sources(num_blocks * kKvBlockSize);
    std::iota(sources.begin(), sources.end(), 0);
    for (const KvMove& move : moves) sources[move.to_slot] = move.from_slot;
    for (size_t slot = 0; slot < sources.size(); ++slot) {
      for (int32_t i = 0; i < 3 * 2 * 2; ++i) {
        const int32_t layer = i / 4, part = i / 2 % 2, head = i % 2, to = static_cast<int32_t>(slot);
        ASSERT_EQ(std::memcmp(kv.elements(layer, part, to, head), old.elements(layer, part, sources[slot], head),
                              kv.bytes_per_token_head()),
                  0)
            << "slot " << slot << " head " << i;
        if (!kv.has_scales()) continue;
        ASSERT_EQ(
            std::memcmp(kv.scale(layer, part, to, head), old.scale(layer, part, sources[slot], head), sizeof(float)), 0)
            << "slot " << slot << " head " << i;
      }
    }
  }
};

TEST_F(MoveKvTest, ReadsAllBeforeItWritesAny) {
  Check(3, {{1, 17}, {17, 40}, {40, 1}, {2, 3}, {3, 4}, {9, 9}});  // a cycle, a chain and a move onto itself
  Check(3, {{1, 17}, {17, 40}, {40, 1}, {2, 3}, {3, 4}, {9, 9}}, KvCacheDtype::kInt8);
  Check(1, {});
}

TEST_F(MoveKvTest, ReadsAllOfManyMovesBeforeItWritesAny) {
  std::vector<KvMove> cycle;  // more moves than one launch takes
  cycle.reserve(600);
  for (int32_t slot = 0; slot < 600; ++slot) cycle.push_back({slot, (slot + 1) % 600});
  Check(40, cycle);
}

class CudaOpsDeathTest : public OnDevice {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a GPU does not follow a fork
    OnDevice::SetUp();
  }
};

TEST_F(CudaOpsDeathTest, EndTheProcessOnShapesThatDoNotFit) {
  std::vector<float> x(12), gain(6);
  std::vector<uint16_t> out(12);
  EXPECT_DEATH(RunRmsNorm({.x = View(x, 2, 6), .gain = gain.data(), .out = View(out, 2, 5)}), "check failed: args.x");
  EXPECT_DEATH(RunGlu({.gate_up = View(x, 2, 6), .out = View(out, 2, 6)}), "check failed: args.gate_up");
  const auto weight = Prepare(View(x, 2, 6));
  const int32_t token_id = 0;
  EXPECT_DEATH(RunEmbed({.weight = weight.get(), .token_ids = &token_id, .out = View(x, 1, 5)}),
               "check failed: .*args.out");
  EXPECT_DEATH(RunMatMul({.x = View(out, 2, 5), .weight = weight.get(), .out = View(x, 2, 2)}),
               "check failed: .*args.x");
}

TEST_F(CudaOpsDeathTest, EndTheProcessWithCallAndPlaceWhenMemoryRunsOut) {
  EXPECT_DEATH(device().Allocate(size_t{1} << 62), "device.cc:[0-9]+: cudaMalloc.*out of memory");
}

}  // namespace
}  // namespace foretoken::kernels::cuda
