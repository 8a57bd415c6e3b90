// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/library_product.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/numeric_class.h"
#include "tests/kernels/cuda/on_device.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr char kLibrary[] = FORETOKEN_CUBLASLT;  // the machine's, or that of the emulated GPU

class MeasureProductsTest : public OnDevice {
 protected:
  MeasuredProducts Measure(const ProductShape& shape) {
    return MeasureProducts(shape, {.num_repetitions = 2, .library = kLibrary}, device());
  }
};

TEST_F(MeasureProductsTest, TimesTheLibrarysProductBesideOurs) {
  const MeasuredProducts measured = Measure({.num_rows = 5, .num_outputs = 128, .num_inputs = 256});
  if (!measured.times) GTEST_SKIP() << measured.error;
  EXPECT_GT(measured.times->our_seconds, 0);
  EXPECT_GT(measured.times->library_seconds, 0);
}

// The emulated library's order is one chain: that of a weight with one split, and of no other.
TEST_F(MeasureProductsTest, SeesWhetherTheBitsAreEqual) {
  if (std::string(kLibrary) == "libcublasLt.so.13") GTEST_SKIP() << "the order of its sums is the library's own";
  ASSERT_EQ(NumericClassOf(21, 200).num_splits, 1);
  ASSERT_EQ(NumericClassOf(21, 1104).num_splits, 4);
  for (const int64_t num_rows : {1, 3, 70}) {
    const MeasuredProducts one_split = Measure({.num_rows = num_rows, .num_outputs = 21, .num_inputs = 200});
    ASSERT_TRUE(one_split.times) << one_split.error;
    EXPECT_TRUE(one_split.times->bits_are_equal) << num_rows;
  }
  const MeasuredProducts splits = Measure({.num_rows = 3, .num_outputs = 21, .num_inputs = 1104});
  ASSERT_TRUE(splits.times) << splits.error;
  EXPECT_FALSE(splits.times->bits_are_equal);
}

TEST_F(MeasureProductsTest, NamesTheLibraryThatTheMachineLacks) {
  const MeasuredProducts measured =
      MeasureProducts({.num_rows = 1, .num_outputs = 8, .num_inputs = 8}, {.library = "libno_such.so.1"}, device());
  EXPECT_FALSE(measured.times);
  EXPECT_NE(measured.error.find("libno_such.so.1"), std::string::npos) << measured.error;
}

TEST_F(MeasureProductsTest, NamesAFunctionThatTheLibraryLacks) {
  const MeasuredProducts measured =
      MeasureProducts({.num_rows = 1, .num_outputs = 8, .num_inputs = 8}, {.library = "libm.so.6"}, device());
  EXPECT_EQ(measured.error, "cuBLASLt: libm.so.6 has no cublasLtCreate");
}

}  // namespace
}  // namespace foretoken::kernels::cuda
