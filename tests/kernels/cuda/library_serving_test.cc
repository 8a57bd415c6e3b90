// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt. If this test fails, a GPU server uses library products with other bits than ours, so tokens
// depend on other requests, or it does not use them where they are faster.
#include "kernels/cuda/matmul/library_serving.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/matmul.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/kernels/cuda/played_library.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

std::vector<uint16_t> RandomBf16(int64_t count, uint32_t seed) {
  std::vector<uint16_t> values;
  for (const float value : testing::RandomValues(seed).Normals(count)) values.push_back(Bf16FromFloat(value));
  return values;
}

class LibraryServingTest : public OnDevice {
 protected:
  static constexpr int64_t kOutputs = 140, kInputs = 192;
  static constexpr int64_t kMaxRows = 128;

  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    weight_ = RandomWeight(kOutputs, kInputs);
  }

  std::unique_ptr<CudaWeight> RandomWeight(int64_t num_outputs, int64_t num_inputs,
                                           WeightQuantization quantization = WeightQuantization::kNone) {
    const std::vector<uint16_t> values = RandomBf16(num_outputs * num_inputs, 1);
    return Prepare({values.data(), DType::kBF16, Shape(num_outputs, num_inputs)}, quantization);
  }

  std::string Tune(LibraryServing& products, const CudaWeight& weight, int64_t max_rows = kMaxRows) {
    const ProductUse use = {.weight = &weight, .max_rows = max_rows};
    return products.Tune({&use, 1});
  }

  // A product of random rows, without the first `skipped` of them; in kAdd it is added to random numbers.
  struct Asked {
    int64_t num_rows = 0;
    int64_t skipped = 0;
    OutputMode mode = OutputMode::kStore;
    const float* bias = nullptr;
  };
  template <typename Multiply>
  std::vector<float> Run(const CudaWeight& weight, const Asked& asked, const Multiply& multiply) {
    const int64_t num_outputs = weight.out_features(), num_inputs = weight.in_features();
    const int64_t all_rows = asked.skipped + asked.num_rows;
    const std::vector<uint16_t> x = RandomBf16(all_rows * num_inputs, 2);
    std::vector<float> out = testing::RandomValues(3).Normals(all_rows * num_outputs);
    const Buffer device_x = device().Allocate(x.size() * sizeof(uint16_t));
    const Buffer device_out = device().Allocate(out.size() * sizeof(float));
    device().Copy(device_x.get(), x.data(), x.size() * sizeof(uint16_t), CopyKind::kToDevice);
    device().Copy(device_out.get(), out.data(), out.size() * sizeof(float), CopyKind::kToDevice);
    multiply(MatMulArgs{.x = {static_cast<uint16_t*>(device_x.get()) + asked.skipped * num_inputs, DType::kBF16,
                              Shape(asked.num_rows, num_inputs)},
                        .weight = &weight,
                        .bias = asked.bias,
                        .mode = asked.mode,
                        .out = {static_cast<float*>(device_out.get()) + asked.skipped * num_outputs, DType::kF32,
                                Shape(asked.num_rows, num_outputs)}});
    device().Copy(out.data(), device_out.get(), out.size() * sizeof(float), CopyKind::kToHost);
    device().Synchronize();
    return {out.begin() + asked.skipped * num_outputs, out.end()};
  }
  std::vector<float> Ours(const CudaWeight& weight, const Asked& asked) {
    return Run(weight, asked, [&](const MatMulArgs& args) { MatMul(args, device().stream()); });
  }
  std::vector<float> Served(LibraryServing& products, const CudaWeight& weight, const Asked& asked) {
    return Run(weight, asked, [&](const MatMulArgs& args) { products.MatMul(args); });
  }

  // From now on the library computes wrong values, so the product shows if the library is used.
  bool AsksTheLibrary(LibraryServing& products, const CudaWeight& weight, const Asked& asked) {
    PlayAlgorithms({{.wrong_row = 0}});
    const bool is_other = Served(products, weight, asked) != Ours(weight, asked);
    PlayAlgorithms({{}});
    return is_other;
  }

  std::unique_ptr<CudaWeight> weight_;
};

class PlayedLibraryTest : public LibraryServingTest {
 protected:
  void SetUp() override {
    LibraryServingTest::SetUp();
    if (IsSkipped()) return;
    if (!PlayAlgorithms({{}})) GTEST_SKIP() << "which bits the machine's library gives is its own affair";
  }
};

TEST_F(PlayedLibraryTest, ServesRowCountsOfEqualBitsWhereItIsFaster) {
  LibraryServing products(device(), LibraryPlayed({}));
  EXPECT_EQ(Tune(products, *weight_),
            "cuBLASLt: 140 x 192: 16 rows served, 32 rows served, 64 rows served, 128 rows served");
  for (const int64_t num_rows : {16, 32, 64, 128}) EXPECT_TRUE(products.Serves(*weight_, num_rows)) << num_rows;
  EXPECT_TRUE(AsksTheLibrary(products, *weight_, {.num_rows = 64}));
  EXPECT_FALSE(AsksTheLibrary(products, *weight_, {.num_rows = 15}));
}

TEST_F(PlayedLibraryTest, LeavesProductsToOurKernelsWhereTheyAreFaster) {
  LibraryServing products(device(), LibraryPlayed({.min_rows = 64, .is_fast = false}));
  EXPECT_EQ(Tune(products, *weight_), "cuBLASLt: 140 x 192: 64 rows slower, 128 rows slower");
  EXPECT_FALSE(AsksTheLibrary(products, *weight_, {.num_rows = 64}));
}

// E1: a row has the same bits in a product of any row count, whether our kernels or the library compute it.
TEST_F(PlayedLibraryTest, RowsHaveTheSameBitsForAnyRowCount) {
  constexpr int64_t kRows = 1500;
  const auto weight = RandomWeight(68, 64);
  LibraryServing products(device(), LibraryPlayed({.min_rows = 512}));
  EXPECT_EQ(Tune(products, *weight, kRows), "cuBLASLt: 68 x 64: 512 rows served, 1024 rows served");
  const std::vector<float> all = Served(products, *weight, {.num_rows = kRows});
  for (const int64_t num_rows : {1, 64, 511, 512, 800, 1024}) {
    const std::vector<float> last = Served(products, *weight, {.num_rows = num_rows, .skipped = kRows - num_rows});
    ASSERT_EQ(std::memcmp(last.data(), all.data() + (kRows - num_rows) * 68, last.size() * sizeof(float)), 0)
        << num_rows;
  }
  EXPECT_EQ(Ours(*weight, {.num_rows = kRows}), all);
}

// Holds for any library: the machine's own gets products of a size that it would serve.
TEST_F(LibraryServingTest, BitsAreOursWithAnyLibrary) {
  const bool is_played = PlayAlgorithms({{}});
  const int64_t num_rows = is_played ? 80 : 3000;
  const auto weight = is_played ? RandomWeight(132, 128) : RandomWeight(12420, 1024);
  LibraryServing products(device(), LibraryPlayed({.min_rows = is_played ? 32 : kMinLibraryRows}));
  RecordProperty("found", Tune(products, *weight, num_rows));
  for (const OutputMode mode : {OutputMode::kStore, OutputMode::kAdd}) {
    const Asked asked = {.num_rows = num_rows, .mode = mode};
    EXPECT_EQ(Served(products, *weight, asked), Ours(*weight, asked));
  }
}

TEST_F(PlayedLibraryTest, AddsAndStoresAsOurKernelsDo) {
  LibraryServing products(device(), LibraryPlayed({}));
  Tune(products, *weight_);
  for (const OutputMode mode : {OutputMode::kStore, OutputMode::kAdd}) {
    for (const int64_t num_rows : {0, 1, 16, 47, 112, 128, 300}) {
      const Asked asked = {.num_rows = num_rows, .mode = mode};
      ASSERT_EQ(Served(products, *weight_, asked), Ours(*weight_, asked)) << num_rows;
    }
  }
}

// Runs of two panels: two whole ones and one of 44 outputs.
TEST_F(PlayedLibraryTest, ServesWeightsThatAreUnpackedInSeveralRuns) {
  const auto weight = RandomWeight(556, 64);
  LibraryOptions options = LibraryPlayed({.min_rows = 32});
  options.run_bytes = size_t{300} * 64 * sizeof(uint16_t);
  LibraryServing products(device(), options);
  EXPECT_EQ(Tune(products, *weight, 64), "cuBLASLt: 556 x 64: 32 rows served, 64 rows served");
  const Asked asked = {.num_rows = 113, .mode = OutputMode::kAdd};
  EXPECT_EQ(Served(products, *weight, asked), Ours(*weight, asked));
  EXPECT_TRUE(AsksTheLibrary(products, *weight, asked));
}

// All runs are tried: here the run of 44 outputs has one other bit.
TEST_F(PlayedLibraryTest, ARunOfOtherBitsIsEnoughToServeNothing) {
  const auto weight = RandomWeight(300, 64);
  LibraryOptions options = LibraryPlayed({.min_rows = 32});
  options.run_bytes = size_t{256} * 64 * sizeof(uint16_t);
  PlayAlgorithms({{.wrong_outputs = 44}});
  LibraryServing products(device(), options);
  EXPECT_EQ(Tune(products, *weight, 32), "cuBLASLt: 300 x 64: 32 rows other bits");
}

TEST_F(PlayedLibraryTest, ServesOtherRowCountsThanTheOneOfOtherBits) {
  PlayAlgorithms({{.wrong_rows = 32}});
  LibraryServing products(device(), LibraryPlayed({}));
  EXPECT_EQ(Tune(products, *weight_),
            "cuBLASLt: 140 x 192: 16 rows served, 32 rows other bits, 64 rows served, 128 rows served");
  for (const int64_t num_rows : {16, 32, 48, 100, 256}) {
    const Asked asked = {.num_rows = num_rows};
    ASSERT_EQ(Served(products, *weight_, asked), Ours(*weight_, asked)) << num_rows;
  }
}

TEST_F(PlayedLibraryTest, OneBitOfOneRowIsEnoughToServeNothing) {
  PlayAlgorithms({{.wrong_row = 63}});
  LibraryServing products(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(products, *weight_), "cuBLASLt: 140 x 192: 64 rows other bits, 128 rows other bits");
  EXPECT_FALSE(products.Serves(*weight_, 64));
  const Asked asked = {.num_rows = 128};
  EXPECT_EQ(Served(products, *weight_, asked), Ours(*weight_, asked));
}

// When it stores, its sums equal ours.
TEST_F(PlayedLibraryTest, AnotherOrderOfAddingToTheOutputIsEnoughToServeNothing) {
  PlayAlgorithms({{.begins_with_out = true}});
  LibraryServing products(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(products, *weight_, 64), "cuBLASLt: 140 x 192: 64 rows other bits");
}

TEST_F(PlayedLibraryTest, SumsThatAreCutOffNearZeroAreEnoughToServeNothing) {
  PlayAlgorithms({{.flushes_subnormals = true}});
  LibraryServing products(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(products, *weight_, 64), "cuBLASLt: 140 x 192: 64 rows other bits");
}

TEST_F(PlayedLibraryTest, TakesTheFirstAlgorithmOfEqualBits) {
  PlayAlgorithms({{.num_splits = 2}, {.wrong_row = 5}, {.status = 15}, {}});
  LibraryServing products(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(products, *weight_, 64), "cuBLASLt: 140 x 192: 64 rows served");
  const Asked asked = {.num_rows = 64, .mode = OutputMode::kAdd};
  EXPECT_EQ(Served(products, *weight_, asked), Ours(*weight_, asked));
}

TEST_F(PlayedLibraryTest, AlgorithmsWithSplitsAreNeverTried) {
  PlayAlgorithms({{.num_splits = 2}});
  LibraryServing products(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(products, *weight_, 64), "cuBLASLt: 140 x 192: 64 rows no algorithm");
}

TEST_F(PlayedLibraryTest, ALibraryThatFailsServesNothing) {
  PlayAlgorithms({{.status = 13}});
  LibraryServing failing(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(failing, *weight_, 64), "cuBLASLt: 140 x 192: 64 rows other bits");
  PlayAlgorithms({});
  LibraryServing empty(device(), LibraryPlayed({.min_rows = 64}));
  EXPECT_EQ(Tune(empty, *weight_, 64), "cuBLASLt: 140 x 192: 64 rows no algorithm");
  const Asked asked = {.num_rows = 64};
  EXPECT_EQ(Served(empty, *weight_, asked), Ours(*weight_, asked));
}

TEST_F(LibraryServingTest, OneLineSaysThatTheMachineLacksTheLibrary) {
  LibraryServing products(device(), {.file = "libno_such.so.1", .min_rows = 64});
  const std::string found = Tune(products, *weight_);
  EXPECT_EQ(found.find("cuBLASLt: libno_such.so.1: "), 0) << found;
  EXPECT_NE(found.find(": our kernels compute all products"), std::string::npos) << found;
  const Asked asked = {.num_rows = 64};
  EXPECT_EQ(Served(products, *weight_, asked), Ours(*weight_, asked));
}

// Weights of several splits, of FP8, of outputs and inputs that do not fill the library's units, and of few rows.
TEST_F(LibraryServingTest, TriesOnlyProductsThatItCouldServe) {
  LibraryServing products(device(), {.file = "libno_such.so.1", .min_rows = 64});
  EXPECT_EQ(Tune(products, *RandomWeight(140, 1024)), "");
  EXPECT_EQ(Tune(products, *RandomWeight(140, 192, WeightQuantization::kFp8)), "");
  EXPECT_EQ(Tune(products, *RandomWeight(142, 192)), "");
  EXPECT_EQ(Tune(products, *RandomWeight(140, 200)), "");
  EXPECT_EQ(Tune(products, *weight_, 63), "");
}

TEST_F(PlayedLibraryTest, AnFp8WeightOfAServedShapeIsOurs) {
  const auto fp8 = RandomWeight(kOutputs, kInputs, WeightQuantization::kFp8);
  LibraryServing products(device(), LibraryPlayed({}));
  Tune(products, *weight_);
  ASSERT_TRUE(products.Serves(*weight_, 64));
  EXPECT_FALSE(products.Serves(*fp8, 64));
  EXPECT_FALSE(AsksTheLibrary(products, *fp8, {.num_rows = 64}));
}

TEST_F(PlayedLibraryTest, ProductsWithBiasOrOffTheirAlignmentAreOurs) {
  LibraryServing products(device(), LibraryPlayed({}));
  Tune(products, *weight_);
  const Buffer bias = device().Allocate(kOutputs * sizeof(float));
  EXPECT_FALSE(AsksTheLibrary(products, *weight_, {.num_rows = 64, .bias = static_cast<const float*>(bias.get())}));
  EXPECT_TRUE(AsksTheLibrary(products, *weight_, {.num_rows = 64, .skipped = 16}));
  EXPECT_FALSE(AsksTheLibrary(products, *weight_, {.num_rows = 64, .skipped = 1}));
}

TEST_F(PlayedLibraryTest, ShapesAreTriedOnceWithTheMostRows) {
  const auto other = RandomWeight(132, 64), same = RandomWeight(kOutputs, kInputs);
  LibraryServing products(device(), LibraryPlayed({.min_rows = 32}));
  const std::vector<ProductUse> uses = {{.weight = weight_.get(), .max_rows = 40},
                                        {.weight = other.get(), .max_rows = 32},
                                        {.weight = same.get(), .max_rows = 64}};
  EXPECT_EQ(products.Tune(uses), "cuBLASLt: 140 x 192: 32 rows served, 64 rows served; 132 x 64: 32 rows served");
  EXPECT_TRUE(products.Serves(*same, 64));
}

using PlayedLibraryDeathTest = PlayedLibraryTest;

TEST_F(PlayedLibraryDeathTest, AProductThatIsRefusedLaterEndsTheProcess) {
  LibraryServing products(device(), LibraryPlayed({}));
  Tune(products, *weight_);
  PlayAlgorithms({{.status = 14}});
  EXPECT_DEATH(Served(products, *weight_, {.num_rows = 64}),
               "library_serving.cc:[0-9]+: cublasLtMatmul: status 14, rank 0 on GPU 0");
}

// The backend with a library: bits and Describe stay the same, and ranks that share a GPU do not use it.
TEST_F(PlayedLibraryTest, TheBackendUsesItAndKeepsItsDescription) {
  const MadeBackend made = MakeBackendWithLibrary({.device = "cuda"}, LibraryPlayed({.min_rows = 128}));
  ASSERT_NE(made.backend, nullptr) << made.error;
  const std::string name = made.backend->Describe();
  const ProductUse use = {.weight = weight_.get(), .max_rows = 128};
  EXPECT_EQ(made.backend->TuneProducts({&use, 1}), "cuBLASLt: 140 x 192: 128 rows served");
  EXPECT_EQ(made.backend->Describe(), name);
  const auto multiply = [&](const MatMulArgs& args) {
    device().Synchronize();
    made.backend->MatMul(args);
    made.backend->Synchronize();
  };
  const Asked asked = {.num_rows = 200};
  EXPECT_EQ(Run(*weight_, asked, multiply), Ours(*weight_, asked));
  PlayAlgorithms({{.wrong_row = 0}});
  EXPECT_NE(Run(*weight_, asked, multiply), Ours(*weight_, asked));
}

TEST_F(LibraryServingTest, RanksThatShareAGpuDoNotUseIt) {
  const int num_devices = device().facts().num_devices;
  const MadeBackend made =
      MakeBackendWithLibrary({.device = "cuda", .num_ranks = num_devices + 1}, LibraryPlayed({.min_rows = 128}));
  ASSERT_NE(made.backend, nullptr) << made.error;
  const ProductUse use = {.weight = weight_.get(), .max_rows = 128};
  EXPECT_EQ(made.backend->TuneProducts({&use, 1}), "");
}

}  // namespace
}  // namespace foretoken::kernels::cuda
