// SPDX-License-Identifier: Apache-2.0
// The table of numeric classes. If this test fails, a new version moves bits without a new fingerprint, so servers of
// two versions give different tokens for one request.
#include "kernels/cuda/matmul/numeric_class.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace foretoken::kernels::cuda {
namespace {

TEST(NumericClass, SplitsCutTheInputsInOrderAndNoneIsShort) {
  for (const int64_t num_outputs : {1, 100, 1024, 1025, 2048, 5000, 6144, 6145, 12288, 12289, 128256}) {
    for (const int64_t num_inputs : {1, 64, 65, 511, 512, 1100, 2048, 4096, 4100, 14336}) {
      const NumericClass order = NumericClassOf(num_outputs, num_inputs);
      ASSERT_EQ(order.num_slices, (num_inputs + 63) / 64);
      ASSERT_EQ(order.split_begin(0), 0);
      ASSERT_EQ(order.split_begin(order.num_splits), order.num_slices);
      for (int32_t split = 0; split < order.num_splits; ++split) {
        const int32_t num_slices = order.split_begin(split + 1) - order.split_begin(split);
        ASSERT_GE(num_slices, order.num_splits == 1 ? 1 : 4) << num_outputs << " x " << num_inputs;
      }
    }
  }
}

// Shapes of models that people serve. A change here moves bits, so it needs a new number in the numerics fingerprint.
TEST(NumericClass, StaysTheSame) {
  EXPECT_EQ(NumericClassOf(6144, 4096), (NumericClass{.num_slices = 64, .num_splits = 4}));    // 8B: qkv
  EXPECT_EQ(NumericClassOf(4096, 4096), (NumericClass{.num_slices = 64, .num_splits = 4}));    // o
  EXPECT_EQ(NumericClassOf(28672, 4096), (NumericClass{.num_slices = 64, .num_splits = 1}));   // gate and up
  EXPECT_EQ(NumericClassOf(4096, 14336), (NumericClass{.num_slices = 224, .num_splits = 4}));  // down
  EXPECT_EQ(NumericClassOf(128256, 4096), (NumericClass{.num_slices = 64, .num_splits = 1}));  // head
  EXPECT_EQ(NumericClassOf(10240, 8192), (NumericClass{.num_slices = 128, .num_splits = 2}));  // 70B: qkv
  EXPECT_EQ(NumericClassOf(2048, 8192), (NumericClass{.num_slices = 128, .num_splits = 8}));   // 1B: down
  EXPECT_EQ(NumericClassOf(1024, 1024), (NumericClass{.num_slices = 16, .num_splits = 4}));  // shorter splits would not
                                                                                             // pay
  EXPECT_EQ(NumericClassOf(1, 1), (NumericClass{.num_slices = 1, .num_splits = 1}));
}

}  // namespace
}  // namespace foretoken::kernels::cuda
