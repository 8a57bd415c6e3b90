// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/embed.h"

#include "kernels/check.h"
#include "kernels/cpu/weight.h"

namespace foretoken::kernels::cpu {

void Embed(const EmbedArgs& args, ThreadPool& pool) {
  const CpuWeight& weight = AsCpuWeight(args.weight);
  const int64_t num_inputs = weight.in_features();
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape.rank == 2 && args.out.shape[1] == num_inputs);
  pool.ParallelFor(args.out.shape[0], [&](int64_t row, int) {
    const int64_t token_id = args.token_ids[row];
    FT_CHECK(token_id >= 0 && token_id < weight.out_features());
    const uint16_t* lane = weight.panel(token_id / kPanelWidth) + token_id % kPanelWidth * 2;
    float* out = args.out.as<float>() + row * num_inputs;
    for (int64_t i = 0; i < num_inputs; ++i) out[i] = FloatFromBf16(lane[i / 2 * (2 * kPanelWidth) + i % 2]);
  });
}

}  // namespace foretoken::kernels::cpu
