// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

// Appends the row's choices. A score that is not a number makes every weight of the row one, so that it shows.
void ChooseExperts(const ExpertsArgs& args, int32_t row, std::vector<Choice>& choices) {
  const std::span scores(args.scores.as<float>() + row * args.scores.shape[1],
                         static_cast<size_t>(args.scores.shape[1]));
  const size_t first = choices.size();
  for (int32_t n = 0; n < args.num_chosen; ++n) {
    Choice best = {.expert = -1, .row = row};
    for (size_t expert = 0; expert < scores.size(); ++expert) {
      const auto is_same = [&](const Choice& choice) { return choice.expert == static_cast<int32_t>(expert); };
      if (best.expert >= 0 && !(scores[expert] > scores[best.expert])) continue;
      if (std::any_of(choices.begin() + first, choices.end(), is_same)) continue;
      best.expert = static_cast<int32_t>(expert);
    }
    choices.push_back(best);
  }
  const float max = *std::ranges::max_element(scores);
  float sum = 0;
  for (size_t i = first; i < choices.size(); ++i) {
    choices[i].weight = std::exp(scores[choices[i].expert] - max);
    if (args.weighting == ExpertWeighting::kOverChosen) sum += choices[i].weight;
  }
  bool has_nan = false;
  for (const float score : scores) {
    if (args.weighting == ExpertWeighting::kOverAll) sum += std::exp(score - max);
    has_nan = has_nan || std::isnan(score);
  }
  if (has_nan) sum = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = first; i < choices.size(); ++i) choices[i].weight /= sum;
}

// An expert's rows at each stage.
struct Stages {
  TensorView x;        // [n, E] bf16
  TensorView gate_up;  // [n, 2 F] f32
  TensorView ffn;      // [n, F] bf16
  TensorView out;      // [n, E] f32
};

Stages Carve(const ExpertsArgs& args, int64_t num_rows, Pages& scratch) {
  const int64_t E = args.x.shape[1], F = args.experts[0].down->in_features();
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

void RunExpert(const ExpertsArgs& args, std::span<const Choice> choices, const Stages& stages,
               const std::function<void(const MatMulArgs&)>& matmul, ThreadPool& pool) {
  const int64_t E = args.x.shape[1];
  const Expert& expert = args.experts[choices[0].expert];
  const auto num_rows = static_cast<int64_t>(choices.size());
  ParallelForRows(num_rows, E, pool, [&](int64_t i) {
    std::copy_n(args.x.as<uint16_t>() + choices[i].row * E, E, stages.x.as<uint16_t>() + i * E);
  });
  matmul({.x = stages.x, .weight = expert.gate_up, .out = stages.gate_up});
  Glu({.gate_up = stages.gate_up, .activation = args.activation, .out = stages.ffn}, pool);
  matmul({.x = stages.ffn, .weight = expert.down, .out = stages.out});
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
  FT_CHECK(args.scores.shape[1] == static_cast<int64_t>(args.experts.size()));
  FT_CHECK(args.num_chosen > 0 && args.num_chosen <= args.scores.shape[1]);
  std::fill_n(args.out.as<float>(), args.out.shape.num_elements(), 0.0f);
  std::vector<Choice> choices;
  for (int32_t row = 0; row < num_rows; ++row) ChooseExperts(args, row, choices);
  // By expert, and rows in order: so a row's sum is in ascending order of its experts.
  std::ranges::stable_sort(choices, {}, &Choice::expert);
  for (auto begin = choices.begin(); begin != choices.end();) {
    const auto end = std::find_if(begin, choices.end(), [&](const Choice& c) { return c.expert != begin->expert; });
    RunExpert(args, std::span(begin, end), Carve(args, end - begin, scratch), matmul, pool);
    begin = end;
  }
}

}  // namespace foretoken::kernels::cpu
