// SPDX-License-Identifier: Apache-2.0
// Stacks of parts of a quantised matrix on a backend. If this test fails, a drafter guesses with other rows of its
// target's head than it names, or ends its process.
#include "common/quantization/prepare_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "common/base/json_fields.h"
#include "common/quantization/find_weight.h"
#include "kernels/make_backend.h"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;

constexpr int64_t kMatrixRows = 64, kMatrixInputs = 96;

// A file with one matrix twice: quantised, and as the bf16 of the same values.
struct Matrices {
  explicit Matrices(const testing::QuantizedFormat& format) {
    testing::RandomValues random(3);
    layer = format.make(kMatrixRows, kMatrixInputs, random);
    testing::RawTensors all;
    testing::AddLayer("x", layer.tensors, all);
    all["plain.weight"] = testing::AsBf16(layer);
    dir.Write("model.safetensors", testing::SafetensorsOf(all));
    checkpoint = std::make_unique<weights::Checkpoint>(weights::Checkpoint::Open(dir.path()).value());
    const auto declared = model::JsonFields::Parse(nlohmann::json{{"quantization_config", format.config}}.dump(), "x");
    const QuantizationConfig config = ReadQuantizationConfig(declared.value()).value();
    quantized = FindWeight(*checkpoint, "x.weight", Shape(kMatrixRows, kMatrixInputs), config).value();
    plain = FindWeight(*checkpoint, "plain.weight", Shape(kMatrixRows, kMatrixInputs), config).value();
  }

  testing::TempDir dir;
  testing::QuantizedLayer layer;
  std::unique_ptr<weights::Checkpoint> checkpoint;
  FoundWeight quantized, plain;
};

std::unique_ptr<kernels::Weight> Prepare(const std::vector<MatrixPart>& parts, kernels::Backend& backend) {
  return PrepareMatrix({.parts = parts,
                        .fetch = weights::FetchPages,
                        .release = weights::ReleasePages,
                        .fetch_tensor = weights::FetchPages,
                        .release_tensor = weights::ReleasePages},
                       backend);
}

// Compares rows of the weight with the rows of the layer that they were taken from.
void ExpectRows(const kernels::Weight& weight, const std::vector<int32_t>& rows, const std::vector<int64_t>& of_layer,
                const testing::QuantizedLayer& layer, kernels::Backend& backend) {
  std::vector<float> out(rows.size() * kMatrixInputs);
  backend.Embed({.weight = &weight,
                 .token_ids = rows.data(),
                 .out = {out.data(), kernels::DType::kF32, Shape(static_cast<int64_t>(rows.size()), kMatrixInputs)}});
  for (size_t i = 0; i < out.size(); ++i) {
    const float value = layer.values[of_layer[i / kMatrixInputs] * kMatrixInputs + i % kMatrixInputs];
    ASSERT_EQ(out[i], kernels::FloatFromBf16(kernels::Bf16FromFloat(value))) << "row " << rows[i / kMatrixInputs];
  }
}

const testing::QuantizedFormat& Fp8() {
  return *std::ranges::find(testing::QuantizedFormats(), "fp8_channel", &testing::QuantizedFormat::name);
}

TEST(PrepareMatrix, StacksRowsOfPlainAndQuantizedMatrices) {
  const Matrices matrices(Fp8());
  const auto backend = kernels::MakeBackend({.num_threads = 2}).backend;
  const auto weight = Prepare({{&matrices.plain, {3, 20}},
                               {&matrices.quantized, {60, 64}},
                               {&matrices.quantized, {0, 33}},
                               {&matrices.plain, {0, 2}},
                               {&matrices.quantized, {7, 8}}},
                              *backend);
  ASSERT_EQ(weight->out_features(), 57);
  ExpectRows(*weight, {0, 16, 17, 20, 21, 53, 54, 55, 56}, {3, 19, 60, 63, 0, 32, 0, 1, 7}, matrices.layer, *backend);
}

// More parts than the system gives a process ranges of addresses (vm.max_map_count, 65,530).
TEST(PrepareMatrix, TakesAPartForEachTokenOfALargeVocabulary) {
  constexpr int64_t kParts = 66'000;
  const Matrices matrices(Fp8());
  const auto backend = kernels::MakeBackend({.num_threads = 2}).backend;
  std::vector<MatrixPart> parts;
  for (int64_t i = 0; i < kParts; ++i)
    parts.push_back({&matrices.quantized, {i * 7 % kMatrixRows, i * 7 % kMatrixRows + 1}});
  const auto weight = Prepare(parts, *backend);
  ASSERT_EQ(weight->out_features(), kParts);
  ExpectRows(*weight, {0, 1, 32'767, kParts - 1}, {0, 7, 32'767 * 7 % kMatrixRows, (kParts - 1) * 7 % kMatrixRows},
             matrices.layer, *backend);
}

}  // namespace
}  // namespace foretoken::quantization
