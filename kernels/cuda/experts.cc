// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts.h"

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/add_experts.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/cuda/choose_experts.h"
#include "kernels/cuda/copy_rows.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/matmul/matmul_grouped.h"

namespace foretoken::kernels::cuda {
namespace {

struct CudaExperts final : ExpertSet {
  CudaExperts(std::span<const MatrixGroup::Member> gate_ups, std::span<const MatrixGroup::Member> downs, Device& device)
      : gate_up(gate_ups, device), down(downs, device) {}

  const MatrixGroup gate_up;  // [2 F, E]
  const MatrixGroup down;     // [E, F]
};

// The choices and what becomes of their rows, for work enqueued while this lives.
class Stages {
 public:
  Stages(const ExpertsArgs& args, const CudaExperts& experts, const ExpertTiles& tiles, cudaStream_t stream)
      : num_choices_(args.x.shape[0] * args.num_chosen),
        E_(experts.down.first().out_features()),
        F_(experts.down.first().in_features()),
        integers_(num_choices_ * (3 * sizeof(int32_t) + sizeof(float)), stream),
        tiles_(tiles.max_tiles * sizeof(GroupedTile), stream),
        x_(num_choices_ * E_ * sizeof(uint16_t), stream),
        gate_up_(num_choices_ * 2 * F_ * sizeof(float), stream),
        ffn_(num_choices_ * F_ * sizeof(uint16_t), stream),
        out_(num_choices_ * E_ * sizeof(float), stream) {}

  int64_t num_choices() const { return num_choices_; }
  ExpertChoices choices() const {
    auto* const integers = static_cast<int32_t*>(integers_.data());
    return {.experts = integers,
            .weights = reinterpret_cast<float*>(integers + num_choices_),
            .places = integers + 2 * num_choices_,
            .rows = integers + 3 * num_choices_,
            .tiles = static_cast<GroupedTile*>(tiles_.data())};
  }
  TensorView x() const { return {x_.data(), DType::kBF16, Shape(num_choices_, E_)}; }
  TensorView gate_up() const { return {gate_up_.data(), DType::kF32, Shape(num_choices_, 2 * F_)}; }
  TensorView ffn() const { return {ffn_.data(), DType::kBF16, Shape(num_choices_, F_)}; }
  TensorView out() const { return {out_.data(), DType::kF32, Shape(num_choices_, E_)}; }

 private:
  int64_t num_choices_, E_, F_;
  StreamScratch integers_, tiles_, x_, gate_up_, ffn_, out_;
};

}  // namespace

std::unique_ptr<ExpertSet> PrepareExperts(int32_t num_experts, const std::function<Expert(int32_t expert)>& expert,
                                          Device& device) {
  std::vector<MatrixGroup::Member> gate_ups, downs;
  for (int32_t i = 0; i < num_experts; ++i) {
    const Expert one = expert(i);
    gate_ups.push_back({.weight = one.gate_up, .bias = one.gate_up_bias});
    downs.push_back({.weight = one.down, .bias = one.down_bias});
  }
  return std::make_unique<CudaExperts>(gate_ups, downs, device);
}

void Experts(const ExpertsArgs& args, cudaStream_t stream) {
  const int64_t num_rows = args.x.shape[0], num_experts = args.scores.shape[1];
  FT_CHECK(args.x.dtype == DType::kBF16 && args.scores.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  FT_CHECK(args.out.shape == args.x.shape && args.scores.shape[0] == num_rows);
  FT_CHECK(args.num_chosen > 0 && args.num_chosen <= num_experts);
  if (num_rows == 0) return;
  const auto& experts = *static_cast<const CudaExperts*>(args.experts);
  const ExpertTiles tiles = PlanExpertTiles(num_rows, args.num_chosen, num_experts);
  const Stages stages(args, experts, tiles, stream);
  const ExpertChoices choices = stages.choices();
  const auto multiply = [&](const ConstTensorView& x, const MatrixGroup& group, const TensorView& out) {
    MatMulGrouped({.x = x,
                   .group = &group,
                   .tiles = choices.tiles,
                   .num_tiles = tiles.max_tiles,
                   .max_tile_rows = tiles.max_rows,
                   .out = out},
                  stream);
  };
  ChooseExperts(args, tiles, choices, stream);
  const auto num_choices = static_cast<int32_t>(stages.num_choices());
  CopyRows({.x = args.x, .from = choices.rows, .num_rows = num_choices, .out = stages.x()}, stream);
  multiply(stages.x(), experts.gate_up, stages.gate_up());
  Glu({.gate_up = stages.gate_up(), .gating = args.gating, .out = stages.ffn()}, stream);
  multiply(stages.ffn(), experts.down, stages.out());
  AddExperts(choices, stages.out(), args.out, stream);
}

}  // namespace foretoken::kernels::cuda
