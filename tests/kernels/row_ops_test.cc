// SPDX-License-Identifier: Apache-2.0
// The ops that work row by row, against tests/reference, on every instruction set. If this test fails, a CPU server
// emits wrong tokens.
//
// Tolerances: u = 2^-24 is f32's unit roundoff, b = 2^-8 that of bf16 (8 significant bits, rounded to nearest). A sum
// of n terms of one sign has a relative error of at most n u. Each further operation adds u, and an exponential of 1
// ulp adds 2 u.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/cpu/attention/move_kv.h"
#include "kernels/cpu/attention/rope_store_kv.h"
#include "kernels/cpu/glu.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/quantize.h"
#include "tests/reference/ops.h"
#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;
using testing::RandomValues;

constexpr double kUnit = 0x1p-24;
constexpr double kBf16Unit = 0x1p-8;

TensorView View(std::vector<float>& values, int64_t rows, int64_t columns) {
  return {values.data(), DType::kF32, Shape(rows, columns)};
}
TensorView View(std::vector<uint16_t>& values, int64_t rows, int64_t columns) {
  return {values.data(), DType::kBF16, Shape(rows, columns)};
}

TEST(RmsNorm, MatchesTheReference) {
  ForEachIsa([] {
    for (const int64_t num_columns : {1, 7, 16, 63, 64, 65, 576, 2048}) {
      RandomValues random(1);
      const int64_t num_rows = 5;
      std::vector<float> x = random.Normals(num_rows * num_columns, 3), gain = random.Normals(num_columns);
      const std::vector<int32_t> rows = {4, 0, 2};
      std::vector<uint16_t> out(rows.size() * num_columns);
      ThreadPool pool(2);
      const RmsNormArgs args{.x = View(x, num_rows, num_columns),
                             .rows = rows.data(),
                             .gain = gain.data(),
                             .eps = 1e-5f,
                             .out = View(out, 3, num_columns)};
      RmsNorm(args, pool);
      const std::vector<double> expected = reference::RmsNorm(args);
      // Sum of squares (halved by the root), root, division, two products, bf16.
      const double tolerance = (num_columns / 2.0 + 6) * kUnit + kBf16Unit;
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(FloatFromBf16(out[i]), expected[i], tolerance * std::abs(expected[i])) << num_columns << " " << i;
      }
    }
  });
}

TEST(RmsNorm, AddsToRowsOfF32) {
  ForEachIsa([] {
    for (const int64_t num_columns : {1, 17, 257, 576}) {
      RandomValues random(7);
      const int64_t num_rows = 4;
      std::vector<float> x = random.Normals(num_rows * num_columns, 3), gain = random.Normals(num_columns);
      std::vector<float> out = random.Normals(num_rows * num_columns);
      const std::vector<float> before = out;
      ThreadPool pool(2);
      const RmsNormArgs args{.x = View(x, num_rows, num_columns),
                             .gain = gain.data(),
                             .eps = 1e-5f,
                             .mode = OutputMode::kAdd,
                             .out = View(out, num_rows, num_columns)};
      RmsNorm(args, pool);
      const std::vector<double> expected = reference::RmsNorm(args);
      // As above, without bf16, and the addition.
      const double tolerance = (num_columns / 2.0 + 6) * kUnit;
      for (size_t i = 0; i < out.size(); ++i) {
        const double sum = before[i] + expected[i];
        ASSERT_NEAR(out[i], sum, tolerance * std::abs(expected[i]) + kUnit * std::abs(sum)) << num_columns << " " << i;
      }
    }
  });
}

TEST(RmsNorm, TakesAllRowsInOrderWithoutAList) {
  std::vector<float> x = {3, 4, 1, -1}, gain = {1, 2};
  std::vector<uint16_t> out(4);
  ThreadPool pool(1);
  RmsNorm({.x = View(x, 2, 2), .gain = gain.data(), .eps = 0, .out = View(out, 2, 2)}, pool);
  const double tolerance = (1 + 6) * kUnit + kBf16Unit;
  EXPECT_NEAR(FloatFromBf16(out[0]), 3 / std::sqrt(12.5), 3 / std::sqrt(12.5) * tolerance);
  EXPECT_NEAR(FloatFromBf16(out[1]), 8 / std::sqrt(12.5), 8 / std::sqrt(12.5) * tolerance);
  EXPECT_EQ(FloatFromBf16(out[2]), 1);
  EXPECT_EQ(FloatFromBf16(out[3]), -2);
}

TEST(RmsNorm, DoesNotDependOnOtherRows) {
  ForEachIsa([] {
    RandomValues random(2);
    const int64_t num_rows = 40, num_columns = 333;
    std::vector<float> x = random.Normals(num_rows * num_columns), gain = random.Normals(num_columns);
    std::vector<uint16_t> all(num_rows * num_columns), alone(num_columns);
    ThreadPool pool(2), caller_only(1);
    RmsNorm({.x = View(x, num_rows, num_columns), .gain = gain.data(), .out = View(all, num_rows, num_columns)}, pool);
    for (int32_t row = 0; row < num_rows; ++row) {
      const TensorView view = View(x, num_rows, num_columns);
      RmsNorm({.x = view, .rows = &row, .gain = gain.data(), .out = View(alone, 1, num_columns)}, caller_only);
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * num_columns)) << row;
    }
  });
}

TEST(MeanSquares, MatchTheReferenceAndDoNotDependOnOtherRows) {
  ForEachIsa([] {
    for (const std::array<int64_t, 2> widths : {std::array<int64_t, 2>{1, 1}, {7, 64}, {65, 16}, {576, 100}}) {
      const int64_t num_rows = 4, num_columns = widths[0] + widths[1] + 3;
      std::vector<float> x = RandomValues(8).Normals(num_rows * num_columns, 3), out(2 * num_rows), alone(2);
      ThreadPool pool(2);
      MeanSquares({.x = View(x, num_rows, num_columns), .widths = widths, .out = View(out, num_rows, 2)}, pool);
      for (int64_t row = 0; row < num_rows; ++row) {
        const float* value = x.data() + row * num_columns;
        for (size_t part = 0; part < 2; ++part) {
          double mean = 0;
          for (int64_t i = 0; i < widths[part]; ++i, ++value) mean += double{*value} * *value / widths[part];
          ASSERT_NEAR(out[2 * row + part], mean, (widths[part] + 1) * kUnit * mean) << row << " " << part;
        }
        const TensorView view{x.data() + row * num_columns, DType::kF32, Shape(1, num_columns)};
        MeanSquares({.x = view, .widths = widths, .out = View(alone, 1, 2)}, pool);
        ASSERT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + 2 * row)) << row;
      }
    }
  });
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

TEST(Glu, MatchesTheReferenceForLargeAndSmallGates) {
  ForEachIsa([] {
    for (const int64_t num_columns : {1, 15, 16, 100, 1024}) {
      RandomValues random(3);
      const int64_t num_rows = 9;
      std::vector<float> gate_up = random.Normals(num_rows * 2 * num_columns, 20);
      gate_up[0] = -120;
      gate_up.back() = 1000;
      std::vector<uint16_t> out(num_rows * num_columns);
      ThreadPool pool(2);
      for (const Gating& gating : kGatings) {
        const GluArgs args{.gate_up = View(gate_up, num_rows, 2 * num_columns),
                           .gating = gating,
                           .out = View(out, num_rows, num_columns)};
        Glu(args, pool);
        const std::vector<double> expected = reference::Glu(args);
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(FloatFromBf16(out[i]), expected[i], GluTolerance(args, i) * std::abs(expected[i]) + 1e-33) << i;
        }
      }
    }
  });
}

TEST(Glu, ShowsAValueThatIsNoNumber) {
  ForEachIsa([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> gate_up = {nan, 1, 1, nan, 1, 1};
    std::vector<uint16_t> out(3);
    ThreadPool pool(1);
    for (const Gating& gating : kGatings) {
      if (!gating.is_interleaved) continue;
      Glu({.gate_up = View(gate_up, 1, 6), .gating = gating, .out = View(out, 1, 3)}, pool);
      EXPECT_TRUE(std::isnan(FloatFromBf16(out[0])) && std::isnan(FloatFromBf16(out[1])));
      EXPECT_FALSE(std::isnan(FloatFromBf16(out[2])));
    }
  });
}

struct RopeShape {
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  bool has_gains;
  KvCacheDtype dtype = KvCacheDtype::kBf16;
  std::optional<int32_t> rotary_dim;
  bool has_whole_norms = false;
};

// How far a cached element may be from `value`, which is one of a token's K or V of a head.
double CacheError(KvCacheDtype dtype, double value, double largest) {
  if (dtype == KvCacheDtype::kBf16) return kBf16Unit * std::abs(value);
  if (dtype == KvCacheDtype::kInt8) return 1.001 * largest / 127 / 2;
  // e4m3 has four significant bits, and below 2^-6 units of 2^-9. Its largest value, 448, stands for `largest`.
  return 1.001 * std::max(std::abs(value) / 16, largest / 448 * 0x1p-10);
}

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

void CheckRope(const RopeShape& shape) {
  RandomValues random(4);
  constexpr int32_t kNumRows = 5, kNumBlocks = 4, kMaxPositions = 50;
  const int32_t half_dim = shape.head_dim / 2;
  const int64_t num_columns = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  std::vector<float> qkv = random.Normals(kNumRows * num_columns), cos, sin;
  for (int32_t i = 0; i < kMaxPositions * half_dim; ++i) {
    const double angle = random.Uniform() * 6.28;
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  const std::vector<float> q_gain = random.Normals(shape.num_heads * shape.head_dim),
                           k_gain = random.Normals(shape.num_kv_heads * shape.head_dim);
  const std::vector<float> mean_squares = {0.5f, 2, 1, 1, 3, 0.25f, 1.5f, 0.1f, 2, 2};
  const std::vector<int32_t> positions = {0, 49, 7, 7, 3}, slots = {63, 0, 17, 16, 40};
  KvCacheView kv{.num_layers = 2,
                 .num_blocks = kNumBlocks,
                 .num_kv_heads = shape.num_kv_heads,
                 .head_dim = shape.head_dim,
                 .dtype = shape.dtype};
  std::vector<uint16_t> cache(kv.num_bytes() / 2);
  kv.data = cache.data();
  std::vector<float> q(kNumRows * shape.num_heads * shape.head_dim);
  ThreadPool pool(2);
  const RopeStoreKvArgs args{.qkv = View(qkv, kNumRows, num_columns),
                             .q_gain = shape.has_gains ? q_gain.data() : nullptr,
                             .k_gain = shape.has_gains ? k_gain.data() : nullptr,
                             .mean_squares = shape.has_whole_norms ? mean_squares.data() : nullptr,
                             .eps = 1e-6f,
                             .rotary_dim = shape.rotary_dim,
                             .cos = cos.data(),
                             .sin = sin.data(),
                             .batch = {.num_rows = kNumRows, .positions = positions.data(), .slots = slots.data()},
                             .kv = kv,
                             .layer = 1,
                             .q = View(q, kNumRows, shape.num_heads * shape.head_dim)};
  RopeStoreKv(args, pool);
  const reference::RotatedRows expected = reference::RopeStoreKv(args);
  // The norm as in RmsNorm, then |x cos| + |y sin|, which is at most the pair's length. The rotation keeps that length.
  const double largest = std::max(LargestOf(expected.q), LargestOf(expected.k));
  const double tolerance = (shape.head_dim / 2.0 + 10) * kUnit * std::sqrt(2.0) * largest;
  for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(q[i], expected.q[i], tolerance) << i;
  size_t i = 0;
  for (const int32_t slot : slots) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      const auto largest = [&](const std::vector<double>& values) {
        double max = 0;
        for (int32_t d = 0; d < shape.head_dim; ++d) max = std::max(max, std::abs(values[i + d]));
        return max;
      };
      const double largest_k = largest(expected.k), largest_v = largest(expected.v);
      for (int32_t d = 0; d < shape.head_dim; ++d, ++i) {
        const double k = reference::CacheValue(kv, 1, 0, slot, head, d),
                     v = reference::CacheValue(kv, 1, 1, slot, head, d);
        ASSERT_NEAR(k, expected.k[i], 2 * tolerance + CacheError(kv.dtype, expected.k[i], largest_k)) << i;
        ASSERT_NEAR(v, expected.v[i], CacheError(kv.dtype, expected.v[i], largest_v)) << i;
        ASSERT_EQ(reference::CacheValue(kv, 0, 0, slot, head, d), 0) << "another layer was written";
        if (kv.has_scales()) continue;
        ASSERT_EQ(reference::CacheElement(kv, 1, 1, slot, head, d), Bf16FromFloat(static_cast<float>(expected.v[i])));
      }
    }
  }
}

TEST(RopeStoreKv, MatchesTheReference) {
  ForEachIsa([] {
    for (const RopeShape& shape :
         {RopeShape{1, 1, 2, false}, RopeShape{4, 2, 16, true}, RopeShape{3, 1, 6, true}, RopeShape{8, 2, 64, false},
          RopeShape{2, 2, 80, true}, RopeShape{2, 1, 128, true}, RopeShape{3, 1, 6, true, KvCacheDtype::kInt8},
          RopeShape{8, 2, 64, false, KvCacheDtype::kInt8}, RopeShape{4, 2, 16, true, KvCacheDtype::kFp8},
          RopeShape{2, 2, 80, true, KvCacheDtype::kFp8}, RopeShape{4, 2, 16, true, KvCacheDtype::kBf16, 12},
          RopeShape{2, 1, 80, false, KvCacheDtype::kInt8, 2}, RopeShape{4, 2, 16, true, KvCacheDtype::kBf16, 0},
          RopeShape{6, 2, 20, true, KvCacheDtype::kBf16, std::nullopt, true}}) {
      CheckRope(shape);
    }
  });
}

TEST(QuantizeKv, ShowsAValueThatIsNotFiniteAndKeepsZerosAndExtremes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  for (const KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kFp8}) {
    std::vector<uint8_t> codes(4);
    for (const float odd : {kInfinity, -kInfinity, std::nanf("")}) {
      const std::vector<float> values = {1, odd, 0, -1};
      EXPECT_TRUE(std::isnan(QuantizeKv(dtype, values.data(), 4, codes.data()))) << odd;
    }
    const auto value = [&](float scale, int i) {
      return scale * (dtype == KvCacheDtype::kInt8 ? static_cast<int8_t>(codes[i]) : FloatFromE4m3(codes[i]));
    };
    const std::vector<float> zeros(4), large = {kMax / 2, -kMax / 2, 0, kMax / 4}, tiny = {1e-45f, 0, 0, 0};
    EXPECT_EQ(QuantizeKv(dtype, zeros.data(), 4, codes.data()), 0);
    EXPECT_EQ(QuantizeKv(dtype, tiny.data(), 4, codes.data()), 0);
    EXPECT_EQ(codes, std::vector<uint8_t>(4));
    const float scale = QuantizeKv(dtype, large.data(), 4, codes.data());
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(value(scale, i), large[i], kMax / 100) << i;
  }
}

void CheckMoves(KvCacheDtype dtype) {
  KvCacheView kv{.num_layers = 3, .num_blocks = 3, .num_kv_heads = 2, .head_dim = 6, .dtype = dtype};
  std::vector<uint16_t> cache(kv.num_bytes() / 2);
  std::iota(cache.begin(), cache.end(), uint16_t{0});
  std::vector<uint16_t> before = cache;
  kv.data = cache.data();
  KvCacheView old = kv;
  old.data = before.data();
  // A cycle, a chain and a move onto itself.
  const std::vector<KvMove> moves = {{1, 17}, {17, 40}, {40, 1}, {2, 3}, {3, 4}, {9, 9}};
  ThreadPool pool(2);
  MoveKv({.kv = kv, .moves = moves}, pool);
  for (int32_t layer = 0; layer < 3; ++layer) {
    for (int32_t part = 0; part < 2; ++part) {
      for (int32_t slot = 0; slot < 48; ++slot) {
        int32_t source = slot;
        for (const KvMove& move : moves) source = move.to_slot == slot ? move.from_slot : source;
        for (int32_t i = 0; i < 12; ++i) {
          ASSERT_EQ(reference::CacheValue(kv, layer, part, slot, i / 6, i % 6),
                    reference::CacheValue(old, layer, part, source, i / 6, i % 6));
        }
      }
    }
  }
}

TEST(MoveKv, ReadsAllBeforeItWritesAny) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kBf16, KvCacheDtype::kInt8, KvCacheDtype::kFp8}) CheckMoves(dtype);
}

}  // namespace
}  // namespace foretoken::kernels::cpu
