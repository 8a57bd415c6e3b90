// SPDX-License-Identifier: Apache-2.0
// The benchmark of products by cuBLASLt. If this test fails, it shows users wrong times for their GPU.
#include "tests/bench/library_product.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/matmul/numeric_class.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/kernels/cuda/played_library.h"

namespace foretoken::kernels::cuda {
namespace {

class MeasuredProductTest : public OnDevice {
 protected:
  MeasuredProduct Product(const ProductShape& shape, const std::string& file = kLibrary) {
    return MeasuredProduct(shape, {.num_repetitions = 2, .library = {.file = file, .min_rows = 16}}, device());
  }
};

TEST_F(MeasuredProductTest, TimesTheLibrarysProductBesideTheServedOne) {
  MeasuredProduct product = Product({.num_rows = 5, .num_outputs = 128, .num_inputs = 256});
  if (!product.error().empty()) GTEST_SKIP() << product.error();
  const ProductTimes times = product.Measure();
  EXPECT_GT(times.served_seconds, 0);
  EXPECT_GT(times.library_seconds, 0);
  EXPECT_FALSE(times.library_serves);
}

// The emulated library adds in one chain: the order of a weight with one split, and of no other weight.
TEST_F(MeasuredProductTest, SeesWhetherTheBitsAreEqual) {
  if (!PlayAlgorithms({{}})) GTEST_SKIP() << "the order of its sums is the library's own";
  ASSERT_EQ(NumericClassOf(21, 200).num_splits, 1);
  ASSERT_EQ(NumericClassOf(21, 1104).num_splits, 4);
  for (const int64_t num_rows : {1, 3, 70}) {
    MeasuredProduct one_split = Product({.num_rows = num_rows, .num_outputs = 21, .num_inputs = 200});
    ASSERT_EQ(one_split.error(), "");
    EXPECT_TRUE(one_split.Measure().bits_are_equal) << num_rows;
  }
  MeasuredProduct splits = Product({.num_rows = 3, .num_outputs = 21, .num_inputs = 1104});
  ASSERT_EQ(splits.error(), "");
  EXPECT_FALSE(splits.Measure().bits_are_equal);
}

TEST_F(MeasuredProductTest, ReportsIfTheLibraryServesTheProduct) {
  const ProductShape shape = {.num_rows = 32, .num_outputs = 128, .num_inputs = 192};
  if (!PlayAlgorithms({{}})) GTEST_SKIP() << "what it serves is the library's own";
  MeasuredProduct equal(shape, {.library = LibraryPlayed({.min_rows = 32, .is_fast = true})}, device());
  EXPECT_TRUE(equal.Measure().library_serves);
  PlayAlgorithms({{.wrong_row = 31}});
  MeasuredProduct different(shape, {.library = LibraryPlayed({.min_rows = 32, .is_fast = true})}, device());
  EXPECT_FALSE(different.Measure().library_serves);
  EXPECT_FALSE(different.Measure().bits_are_equal);
}

TEST_F(MeasuredProductTest, NamesTheLibraryThatTheMachineLacks) {
  const std::string error = Product({.num_rows = 1, .num_outputs = 8, .num_inputs = 8}, "libno_such.so.1").error();
  EXPECT_NE(error.find("libno_such.so.1"), std::string::npos) << error;
}

TEST_F(MeasuredProductTest, NamesAFunctionThatTheLibraryLacks) {
  EXPECT_EQ(Product({.num_rows = 1, .num_outputs = 8, .num_inputs = 8}, "libm.so.6").error(),
            "cuBLASLt: libm.so.6 has no cublasLtCreate");
}

TEST_F(MeasuredProductTest, SaysThatTheLibraryKnowsNoAlgorithm) {
  if (!PlayAlgorithms({})) GTEST_SKIP() << "the machine's library knows some";
  EXPECT_EQ(Product({.num_rows = 1, .num_outputs = 8, .num_inputs = 8}).error(),
            "cuBLASLt: no algorithm for this product");
}

}  // namespace
}  // namespace foretoken::kernels::cuda
