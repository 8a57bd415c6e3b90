// SPDX-License-Identifier: Apache-2.0
// The required behaviour of a layer's experts, for any backend.
//
//   TEST(Experts, ...) { ExpectExpertsAsDefined(*backend); }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace foretoken::testing {

struct ExpertSizes {
  int64_t E = 48;
  int64_t F = 40;
  int64_t N = 6;
};

// Random experts, as matrices of a backend and as numbers.
class RandomExperts {
 public:
  using QuantizationOf = std::function<kernels::Quantization(int32_t expert)>;
  // Without a function, matrices are kept as bf16.
  explicit RandomExperts(kernels::Backend& backend, const ExpertSizes& sizes = {},
                         const QuantizationOf& quantization_of = nullptr);

  const ExpertSizes& sizes() const { return sizes_; }
  kernels::Backend& backend() const { return backend_; }
  kernels::Expert expert(int32_t i, bool has_biases) const;
  // The rows of an expert's matrices, and its biases, on the host.
  const uint16_t* gate_up(int64_t expert, int64_t output) const { return &gate_up_[expert][output * sizes_.E]; }
  const uint16_t* down(int64_t expert, int64_t output) const { return &down_[expert][output * sizes_.F]; }
  float gate_up_bias(int64_t expert, int64_t output) const { return gate_up_bias_[expert][output]; }
  float down_bias(int64_t expert, int64_t output) const { return down_bias_[expert][output]; }

 private:
  kernels::Backend& backend_;
  ExpertSizes sizes_;
  std::vector<std::vector<uint16_t>> gate_up_, down_;         // by expert
  std::vector<std::vector<float>> gate_up_bias_, down_bias_;  // by expert
  std::vector<std::unique_ptr<kernels::Weight>> weights_;     // gate and up, then down
  std::vector<kernels::Buffer> biases_;                       // likewise, in the backend's memory
};

// Rows that choose among the experts, and the options of the op. Scores and `out` are the host's.
struct ExpertRows {
  ExpertRows(const ExpertSizes& sizes, int64_t num_rows);

  ExpertRows Alone(int64_t row) const;
  std::vector<float> OutOf(int64_t row) const;
  // Fills `out`.
  void Run(const RandomExperts& experts);

  ExpertSizes sizes;
  int64_t num_rows;
  std::vector<uint16_t> x;    // [T, E]
  std::vector<float> scores;  // [T, N]
  int32_t num_chosen = 3;
  std::vector<float> bias;  // [N], or empty
  bool has_biases = false;  // of the experts
  kernels::ExpertWeighting weighting = kernels::ExpertWeighting::kSoftmaxOverChosen;
  float scale = 1;
  kernels::Gating gating;
  std::vector<float> out;  // [T, E]
};

// With each weighting and with several activations.
void ExpectExpertsAsDefined(kernels::Backend& backend);
void ExpectExpertsWithBiasesAndACutGate(kernels::Backend& backend);
void ExpectTiesToTheLowerExpert(kernels::Backend& backend);
void ExpectAScoreThatIsNoNumberInItsRowAlone(kernels::Backend& backend);
// Each of the rows has the bits that it has alone.
void ExpectRowsAsAlone(const RandomExperts& experts, int64_t num_rows);

}  // namespace foretoken::testing
