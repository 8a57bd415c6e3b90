// SPDX-License-Identifier: Apache-2.0
// Matrices of GGUF types: their values against the reference, bit for bit, and their integers. If this test fails, a
// GGUF model is served with wrong weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"
#include "kernels/make_backend.h"
#include "tests/reference/gguf.h"
#include "tests/testing/models/gguf_writer.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using reference::GgufType;
using ::testing::HasSubstr;

constexpr int64_t kRows = 48, kColumns = 512, kHeadDim = 16;

// Random blocks. Bytes are any bytes, but the F16 are finite: their exponents are below 31.
std::string RandomBlocks(const GgufType& type, int64_t num_blocks, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes;
  for (int64_t block = 0; block < num_blocks; ++block) {
    std::string one;
    for (int64_t i = 0; i < type.block_bytes; ++i) one.push_back(static_cast<char>(random()));
    const bool has_two = type.name == "Q4_1" || type.name == "Q5_1" || type.name == "Q4_K" || type.name == "Q5_K";
    std::vector<size_t> halves;
    if (type.name != "MXFP4") halves.push_back(type.name == "Q6_K" ? 209 : 1);
    if (has_two) halves.push_back(3);
    for (const size_t at : halves) one[at] = static_cast<char>(one[at] & 0xbb);
    bytes += one;
  }
  return bytes;
}

// A matrix in a file of its own, as the layer's q (rows interleaved) or its o.
struct StoredGguf {
  testing::TempDir dir;
  weights::Checkpoint checkpoint;
  FoundWeight weight;

  StoredGguf(const GgufType& type, const std::string& bytes, const std::string& role)
      : checkpoint(Open(type, bytes, role)), weight(Find(role)) {}

  weights::Checkpoint Open(const GgufType& type, const std::string& bytes, const std::string& role) const {
    testing::GgufWriter writer;
    writer.Add("general.architecture", std::string("llama"));
    writer.Add("llama.embedding_length", uint32_t{kColumns});
    writer.Add("llama.attention.head_count", uint32_t{kColumns / kHeadDim});
    writer.AddTensor(
        {.name = "blk.0.attn_" + role + ".weight", .type = type.id, .shape = {kRows, kColumns}, .bytes = bytes});
    return weights::Checkpoint::Open(dir.Write("x.gguf", writer.Bytes())).value();
  }
  FoundWeight Find(const std::string& role) const {
    const std::string name = "model.layers.0.self_attn." + std::string(role == "q" ? "q_proj" : "o_proj") + ".weight";
    absl::StatusOr<FoundWeight> found = FindWeight(checkpoint, name, Shape(kRows, kColumns), {});
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }
};

// Row r of the model in the file, for heads of kHeadDim rows.
int64_t FileRow(int64_t row) {
  const int64_t head = row / kHeadDim, at = row % kHeadDim;
  for (int64_t j = 0; j < kHeadDim / 2; ++j) {
    if (at == j) return head * kHeadDim + 2 * j;
    if (at == j + kHeadDim / 2) return head * kHeadDim + 2 * j + 1;
  }
  return -1;
}

std::vector<float> ReferenceValues(const GgufType& type, const std::string& bytes, bool is_interleaved) {
  std::vector<float> values;
  const auto* blocks = reinterpret_cast<const uint8_t*>(bytes.data());
  const int64_t row_blocks = kColumns / type.block_values;
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t first_block = (is_interleaved ? FileRow(row) : row) * row_blocks;
    for (int64_t i = 0; i < kColumns; ++i) {
      const uint8_t* block = blocks + (first_block + i / type.block_values) * type.block_bytes;
      values.push_back(reference::GgufValue(type.name, block, i % type.block_values));
    }
  }
  return values;
}

class GgufMatrix : public ::testing::TestWithParam<GgufType> {
 protected:
  const std::string bytes_ = RandomBlocks(GetParam(), kRows* kColumns / GetParam().block_values, 3);
};

TEST_P(GgufMatrix, HoldsTheReferencesValues) {
  for (const std::string role : {"q", "output"}) {
    const StoredGguf stored(GetParam(), bytes_, role);
    ASSERT_NE(stored.weight.stored, nullptr);
    std::vector<float> values(kRows * kColumns);
    stored.weight.stored->ReadValues(0, 5, values.data());
    stored.weight.stored->ReadValues(5, kRows - 5, values.data() + 5 * kColumns);
    const std::vector<float> expected = ReferenceValues(GetParam(), bytes_, role == "q");
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << role << " value " << i;
    }
    EXPECT_EQ(stored.weight.num_bytes(), bytes_.size());
  }
}

// scale * (code - center) + offset, in exact arithmetic, is the value, but for the rounding of the offset and of the
// value itself: each is at most one part in 2^24 of the largest number that takes part.
TEST_P(GgufMatrix, HoldsTheValuesInItsIntegers) {
  const StoredGguf stored(GetParam(), bytes_, "q");
  const kernels::IntegerGroups groups = stored.weight.stored->groups().value();
  const int64_t row_groups = kColumns / groups.group_size;
  std::vector<uint8_t> codes(kRows * kColumns);
  std::vector<float> scales(kRows * row_groups), offsets(kRows * row_groups), values(kRows * kColumns);
  stored.weight.stored->ReadGroups(0, kRows, codes.data(), scales.data(), offsets.data());
  stored.weight.stored->ReadValues(0, kRows, values.data());
  const int center = 1 << (groups.bits - 1);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LT(codes[i], 1 << groups.bits);
    const double scale = scales[i / groups.group_size],
                 offset = groups.has_offsets ? offsets[i / groups.group_size] : 0;
    const double tolerance =
        groups.has_offsets ? 0x1p-23 * (32 * std::abs(scale) + std::abs(offset)) : 0x1p-24 * std::abs(values[i]);
    ASSERT_NEAR(scale * (codes[i] - center) + offset, values[i], tolerance + 0x1p-149) << i;
    if (groups.scale_dtype == kernels::DType::kBF16) {
      ASSERT_EQ(kernels::FloatFromBf16(kernels::Bf16FromFloat(scales[i / groups.group_size])), scale);
    }
    if (groups.scale_dtype == kernels::DType::kF16 && std::isfinite(scale)) {
      ASSERT_EQ(kernels::FloatFromF16(kernels::F16FromFloat(scales[i / groups.group_size])), scale);
    }
  }
}

// The products of the factors are the scales and offsets, to the last bit.
TEST_P(GgufMatrix, HoldsItsScalesInFactors) {
  const StoredGguf stored(GetParam(), bytes_, "q");
  const kernels::IntegerGroups groups = stored.weight.stored->groups().value();
  EXPECT_EQ(groups.blocks.has_value(), GetParam().name.ends_with("_K"));
  if (!groups.blocks) return;
  const int64_t num_groups = kRows * kColumns / groups.group_size;
  std::vector<uint8_t> codes(kRows * kColumns);
  std::vector<float> scales(num_groups), offsets(num_groups);
  stored.weight.stored->ReadGroups(0, kRows, codes.data(), scales.data(), offsets.data());
  kernels::ScaleFactors factors;
  stored.weight.stored->ReadFactors(0, 5, factors);
  stored.weight.stored->ReadFactors(5, kRows - 5, factors);
  ASSERT_EQ(factors.scale_factors.size(), scales.size());
  ASSERT_EQ(factors.minimum_factors.size(), scales.size());
  ASSERT_EQ(factors.scales.size() * groups.blocks->num_groups, scales.size());
  ASSERT_EQ(factors.minimums.size(), factors.scales.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    const size_t block = i / groups.blocks->num_groups;
    const float scale = kernels::FloatFromF16(factors.scales[block]) * factors.scale_factors[i];
    ASSERT_EQ(scale, scales[i]) << i;
    if (!groups.has_offsets) continue;
    ASSERT_EQ(groups.blocks->zero * scale - kernels::FloatFromF16(factors.minimums[block]) * factors.minimum_factors[i],
              offsets[i])
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GgufMatrix, ::testing::ValuesIn(reference::GgufTypes()),
                         [](const auto& info) { return info.param.name; });

// The table in docs/models.md says so.
TEST(GgufMatrices, StayIntegersOnTheCpu) {
  const std::map<std::string, double> bits = {{"Q8_0", 8.5}, {"IQ4_NL", 8.5}, {"Q6_K", 6.625}, {"Q5_K", 6.625},
                                              {"Q5_0", 6.5}, {"MXFP4", 4.5},  {"Q5_1", 7.5},   {"Q4_K", 4.625},
                                              {"Q4_0", 4.5}, {"Q4_1", 5.5}};
  const kernels::MadeBackend made = kernels::MakeBackend({.device = "cpu", .num_threads = 1});
  for (const GgufType& type : reference::GgufTypes()) {
    const StoredGguf stored(type, RandomBlocks(type, kRows * kColumns / type.block_values, 3), "output");
    const kernels::StoredPart part = {stored.weight.stored.get(), {0, kRows}};
    EXPECT_EQ(made.backend->KeptGroups({&part, 1}, 0), std::vector{*stored.weight.stored->groups()}) << type.name;
    const auto weight = made.backend->PrepareWeight({.stored = {&part, 1}});
    EXPECT_EQ(static_cast<double>(weight->num_bytes()) * 8 / (kRows * kColumns), bits.at(type.name)) << type.name;
  }
}

TEST(GgufMatrices, OfAnotherShapeOrOfHeadsInPartAreRefused) {
  const GgufType& q8 = reference::GgufTypes()[4];
  const StoredGguf stored(q8, RandomBlocks(q8, kRows * kColumns / 32, 3), "q");
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_THAT(FindWeight(stored.checkpoint, name, Shape(kRows, 2 * kColumns), {}).status().ToString(),
              HasSubstr("expected Q8_0 [48, 1024], got Q8_0 [48, 512]"));

  testing::GgufWriter writer;
  writer.Add("general.architecture", std::string("llama"));
  writer.Add("llama.embedding_length", uint32_t{32});
  writer.Add("llama.attention.head_count", uint32_t{2});
  writer.AddTensor({.name = "blk.0.attn_q.weight", .shape = {8, 4}, .bytes = std::string(128, '\0')});
  const testing::TempDir dir;
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(dir.Write("x.gguf", writer.Bytes())).value();
  EXPECT_THAT(FindWeight(checkpoint, name, Shape(8, 4), {}).status().ToString(),
              HasSubstr("expected whole heads of 16 rows, got 8 rows"));
}

}  // namespace
}  // namespace foretoken::quantization
