// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/embed.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/base/workspace.h"
#include "kernels/cpu/matmul/weight.h"

namespace foretoken::kernels::cpu {

void Embed(const EmbedArgs& args, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  FT_CHECK(weight.stack().empty());
  const int64_t num_inputs = weight.in_features();
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape.rank == 2 && args.out.shape[1] == num_inputs);
  pool.ParallelFor(args.out.shape[0], [&](int64_t row, int) {
    const int64_t token_row = args.token_ids[row] - args.first_token_id.value_or(0);
    float* out = args.out.as<float>() + row * num_inputs;
    if (token_row < 0 || token_row >= weight.out_features()) {
      FT_CHECK(args.first_token_id.has_value());
      std::fill_n(out, num_inputs, 0.0f);
      return;
    }
    const int64_t panel = token_row / kPanelWidth, output = token_row % kPanelWidth;
    if (weight.integers() != nullptr) {
      const std::span<const int32_t> order = weight.input_order();
      if (order.empty()) {
        return ReadValues(*weight.integers(), weight.panel(panel), static_cast<int>(output), num_inputs, out);
      }
      auto* const values = ThreadWorkspace<float>(order.size());
      ReadValues(*weight.integers(), weight.panel(panel), static_cast<int>(output), num_inputs, values);
      for (size_t i = 0; i < order.size(); ++i) out[order[i]] = values[i];
      return;
    }
    const uint16_t* lane = weight.bf16_panel(panel) + output * 2;
    for (int64_t i = 0; i < num_inputs; ++i) out[i] = FloatFromBf16(lane[i / 2 * (2 * kPanelWidth) + i % 2]);
  });
}

}  // namespace foretoken::kernels::cpu
