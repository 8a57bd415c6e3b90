// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/copy_rows.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

namespace foretoken::kernels::cpu {
namespace {

template <typename From, typename To, typename Convert>
void CopyEach(const CopyRowsArgs& args, ThreadPool& pool, const Convert& convert) {
  const int64_t num_columns = args.x.shape[1];
  ParallelForRows(args.num_rows, num_columns, pool, [&](int64_t i) {
    const int64_t from = args.from != nullptr ? args.from[i] : i;
    const int64_t to = args.to != nullptr ? args.to[i] : i;
    const From* x = args.x.as<From>() + from * num_columns;
    std::transform(x, x + num_columns, args.out.as<To>() + to * args.out.shape[1] + args.first_column, convert);
  });
}

}  // namespace

void CopyRows(const CopyRowsArgs& args, ThreadPool& pool) {
  FT_CHECK(args.first_column >= 0 && args.first_column + args.x.shape[1] <= args.out.shape[1]);
  const auto is_f32 = [](DType dtype) {
    FT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
    return dtype == DType::kF32;
  };
  if (is_f32(args.x.dtype)) {
    is_f32(args.out.dtype) ? CopyEach<float, float>(args, pool, [](float x) { return x; })
                           : CopyEach<float, uint16_t>(args, pool, [](float x) { return Bf16FromFloat(x); });
  } else {
    is_f32(args.out.dtype) ? CopyEach<uint16_t, float>(args, pool, [](uint16_t x) { return FloatFromBf16(x); })
                           : CopyEach<uint16_t, uint16_t>(args, pool, [](uint16_t x) { return x; });
  }
}

}  // namespace foretoken::kernels::cpu
