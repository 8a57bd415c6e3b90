// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"
#include "kernels/cpu/glu.h"

namespace foretoken::kernels::cpu {
namespace {

// A row and one of its experts.
struct Choice {
  int32_t expert = 0;
  int32_t row = 0;
  float weight = 0;
};

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

bool IsSigmoid(ExpertWeighting weighting) {
  return weighting == ExpertWeighting::kSigmoidOverChosen || weighting == ExpertWeighting::kSigmoid;
}

// The weights of all experts, before those of the chosen ones are divided by a sum.
std::vector<float> WeighExperts(ExpertWeighting weighting, std::span<const float> scores) {
  std::vector<float> weights;
  const float max = *std::ranges::max_element(scores);
  for (const float score : scores) {
    weights.push_back(IsSigmoid(weighting) ? Sigmoid(score) : std::exp(score - max));
  }
  return weights;
}

// The best expert that the row has not chosen yet. Comparisons with a value that is no number are false.
int32_t BestOfRest(std::span<const float> values, std::span<const Choice> chosen) {
  int32_t best = -1;
  for (int32_t expert = 0; expert < static_cast<int32_t>(values.size()); ++expert) {
    if (best >= 0 && !(values[expert] > values[best])) continue;
    if (std::ranges::find(chosen, expert, &Choice::expert) == chosen.end()) best = expert;
  }
  return best;
}

// Appends the row's choices. A score that is no number makes every weight of the row one, so that it shows.
void ChooseExperts(const ExpertsArgs& args, int32_t row, std::vector<Choice>& choices) {
  const int64_t num_experts = args.scores.shape[1];
  const std::span scores(args.scores.as<float>() + row * num_experts, static_cast<size_t>(num_experts));
  const std::vector<float> weights = WeighExperts(args.weighting, scores);
  std::vector<float> values(scores.begin(), scores.end());
  if (args.bias != nullptr) {
    for (int64_t i = 0; i < num_experts; ++i) values[i] = weights[i] + args.bias[i];
  }
  const size_t first = choices.size();
  float sum_of_chosen = 0, sum_of_all = 0;
  for (int32_t n = 0; n < args.num_chosen; ++n) {
    const int32_t expert = BestOfRest(values, std::span(choices).subspan(first));
    choices.push_back({.expert = expert, .row = row, .weight = weights[expert] * args.scale});
    sum_of_chosen += weights[expert];
  }
  for (const float weight : weights) sum_of_all += weight;
  float divisor = std::isnan(sum_of_all) ? sum_of_all : 1;
  if (args.weighting == ExpertWeighting::kSoftmaxOverAll) divisor = sum_of_all;
  const bool is_over_chosen =
      args.weighting == ExpertWeighting::kSoftmaxOverChosen || args.weighting == ExpertWeighting::kSigmoidOverChosen;
  if (is_over_chosen && !std::isnan(sum_of_all)) divisor = sum_of_chosen;
  for (size_t i = first; i < choices.size(); ++i) choices[i].weight /= divisor;
}

// An expert's rows at each stage.
struct Stages {
  TensorView x;        // [n, E] bf16
  TensorView gate_up;  // [n, 2 F] f32
  TensorView ffn;      // [n, F] bf16
  TensorView out;      // [n, E] f32
};

Stages Carve(const Expert& expert, int64_t num_rows, Pages& scratch) {
  const int64_t E = expert.down->out_features(), F = expert.down->in_features();
  Stages stages = {.x = {nullptr, DType::kBF16, Shape(num_rows, E)},
                   .gate_up = {nullptr, DType::kF32, Shape(num_rows, 2 * F)},
                   .ffn = {nullptr, DType::kBF16, Shape(num_rows, F)},
                   .out = {nullptr, DType::kF32, Shape(num_rows, E)}};
  TensorView* const all[] = {&stages.x, &stages.gate_up, &stages.ffn, &stages.out};
  const auto aligned = [](const TensorView& view) { return (view.num_bytes() + 63) / 64 * 64; };
  size_t num_bytes = 0;
  for (const TensorView* view : all) num_bytes += aligned(*view);
  if (scratch.num_bytes() < num_bytes) scratch = Pages(num_bytes);
  auto* next = static_cast<std::byte*>(scratch.data());
  for (TensorView* view : all) {
    view->data = next;
    next += aligned(*view);
  }
  return stages;
}

void RunExpert(const ExpertsArgs& args, std::span<const Choice> choices,
               const std::function<void(const MatMulArgs&)>& matmul, Pages& scratch, ThreadPool& pool) {
  const int64_t E = args.x.shape[1];
  const Expert expert = static_cast<const CpuExperts*>(args.experts)->expert(choices[0].expert);
  const auto num_rows = static_cast<int64_t>(choices.size());
  const Stages stages = Carve(expert, num_rows, scratch);
  ParallelForRows(num_rows, E, pool, [&](int64_t i) {
    std::copy_n(args.x.as<uint16_t>() + choices[i].row * E, E, stages.x.as<uint16_t>() + i * E);
  });
  matmul({.x = stages.x, .weight = expert.gate_up, .bias = expert.gate_up_bias, .out = stages.gate_up});
  Glu({.gate_up = stages.gate_up, .gating = args.gating, .out = stages.ffn}, pool);
  matmul({.x = stages.ffn, .weight = expert.down, .bias = expert.down_bias, .out = stages.out});
  ParallelForRows(num_rows, E, pool, [&](int64_t i) {
    const float* from = stages.out.as<float>() + i * E;
    float* to = args.out.as<float>() + choices[i].row * E;
    for (int64_t c = 0; c < E; ++c) to[c] += choices[i].weight * from[c];
  });
}

}  // namespace

void Experts(const ExpertsArgs& args, const std::function<void(const MatMulArgs&)>& matmul, Pages& scratch,
             ThreadPool& pool) {
  const int64_t num_rows = args.x.shape[0];
  FT_CHECK(args.x.dtype == DType::kBF16 && args.scores.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  FT_CHECK(args.out.shape == args.x.shape && args.scores.shape[0] == num_rows);
  FT_CHECK(args.num_chosen > 0 && args.num_chosen <= args.scores.shape[1]);
  std::fill_n(args.out.as<float>(), args.out.shape.num_elements(), 0.0f);
  std::vector<Choice> choices;
  for (int32_t row = 0; row < num_rows; ++row) ChooseExperts(args, row, choices);
  // By expert, and rows in order: so a row's sum is in ascending order of its experts.
  std::ranges::stable_sort(choices, {}, &Choice::expert);
  for (auto begin = choices.begin(); begin != choices.end();) {
    const auto end = std::find_if(begin, choices.end(), [&](const Choice& c) { return c.expert != begin->expert; });
    RunExpert(args, std::span(begin, end), matmul, scratch, pool);
    begin = end;
  }
}

}  // namespace foretoken::kernels::cpu
