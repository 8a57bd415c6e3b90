// SPDX-License-Identifier: Apache-2.0
// Making backends by name. If this test fails, a server runs on another instruction set than its fingerprint says, or
// crashes on a machine that lacks one.
#include "kernels/make_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "kernels/free_memory.h"

namespace foretoken::kernels {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MakeBackend, MakesEverySupportedIsaByName) {
  for (const std::string& isa : SupportedCpuIsas()) {
    const MadeBackend made = MakeBackend({.device = "cpu", .num_threads = 1, .isa = isa});
    ASSERT_NE(made.backend, nullptr) << made.error;
    EXPECT_THAT(made.backend->Describe(), StartsWith("cpu/" + isa + " highway-"));
  }
}

TEST(MakeBackend, AutoIsTheBestOfThisMachine) {
  const MadeBackend made = MakeBackend({});
  ASSERT_NE(made.backend, nullptr) << made.error;
  EXPECT_THAT(made.backend->Describe(), StartsWith("cpu/" + SupportedCpuIsas().front() + " "));
  EXPECT_EQ(SupportedCpuIsas().back(), "baseline");
}

TEST(MakeBackend, DescribesTheTargetThatTheOpsReallyTake) {
  for (const std::string& isa : SupportedCpuIsas()) {
    const MadeBackend made = MakeBackend({.num_threads = 1, .isa = isa});
    const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
    const int64_t taken = usable & -usable;  // the lowest bit is the best target
    EXPECT_THAT(made.backend->Describe(), EndsWith(std::string("/") + hwy::TargetName(taken)));
    if (isa == "amx" || isa.starts_with("avx512")) {
      EXPECT_THAT(made.backend->Describe(), EndsWith("/AVX3"));
    } else if (isa.starts_with("avx")) {
      EXPECT_THAT(made.backend->Describe(), EndsWith("/AVX2"));
    }
  }
}

// What is allocated is hardly touched, so the free memory of the machine still has all of it.
TEST(MakeBackend, RefusesMemoryOnTheCpuBeyondWhatItHasAllocated) {
  const std::optional<int64_t> whole = WholeMemory();
  if (!whole.has_value()) GTEST_SKIP() << "the machine does not show its memory";
  const MadeBackend made = MakeBackend({.num_threads = 1});
  ASSERT_NE(made.backend, nullptr) << made.error;
  const auto half = static_cast<size_t>(*whole) / 2;
  const MemoryNeed need = {.kv_bytes = half + half / 2};
  EXPECT_EQ(made.backend->MemoryRefusal(need), std::nullopt);
  {
    const Buffer kv = made.backend->Allocate(half);
    EXPECT_THAT(made.backend->MemoryRefusal(need).value_or(""),
                HasSubstr(" and has " + std::to_string(half >> 20) + " MiB. Lower --kv_cache_mb"));
  }
  EXPECT_EQ(made.backend->MemoryRefusal(need), std::nullopt);
}

TEST(MakeBackend, RefusesIsasAndDevicesOfOtherMachinesAndBuilds) {
  EXPECT_THAT(MakeBackend({.device = "abacus"}).error, HasSubstr("got \"abacus\""));
  const MadeBackend cuda = MakeBackend({.device = "cuda"});  // a build with CUDA names the fault of this machine
  EXPECT_TRUE(cuda.backend != nullptr || cuda.error.starts_with("device: ")) << cuda.error;
  EXPECT_EQ(cuda.error.find('\n'), std::string::npos);
  EXPECT_THAT(MakeBackend({.num_threads = -1}).error, HasSubstr("got -1"));
  EXPECT_EQ(MakeBackend({.quantization = {.weights = "fp8"}}).error,
            "weight_quantization: fp8 needs the device cuda, got cpu");
  EXPECT_EQ(MakeBackend({.quantization = {.weights = "int3"}}).error,
            "weight_quantization: expected none, fp8, int8 or int4, got \"int3\"");
  EXPECT_EQ(MakeBackend({.quantization = {.kv_cache = "fp16"}}).error,
            "kv_cache_dtype: expected bf16, int8 or fp8, got \"fp16\"");
  EXPECT_EQ(MakeBackend({.quantization = {.head = "fp8"}}).error,
            "head_quantization: expected none, int8 or int4, got \"fp8\"");
  EXPECT_EQ(MakeBackend({.quantization = {.weights = "int8", .group_size = 48}}).error,
            "weight_group_size: expected 32, 64 or 128, got 48");
  EXPECT_EQ(MakeBackend({.quantization = {.activations = "int4"}}).error,
            "activation_quantization: expected none or int8, got \"int4\"");
  EXPECT_EQ(MakeBackend({.device = "cuda", .quantization = {.activations = "int8"}}).error,
            "activation_quantization: int8 needs the device cpu, got cuda");
  for (const std::string isa : {"amx", "avx512_bf16", "avx512_vnni", "avx512", "avx_vnni", "avx2", "mmx", ""}) {
    const std::vector<std::string> supported = SupportedCpuIsas();
    if (std::ranges::find(supported, isa) != supported.end()) continue;
    const MadeBackend made = MakeBackend({.isa = isa});
    EXPECT_EQ(made.backend, nullptr);
    EXPECT_THAT(made.error, HasSubstr("got \"" + isa + "\""));
    EXPECT_THAT(made.error, HasSubstr(supported.front()));
  }
}

TEST(MakeBackend, KeepsOneIsaPerProcessAtATime) {
  if (SupportedCpuIsas().size() < 2) GTEST_SKIP() << "this machine has one isa";
  MadeBackend best = MakeBackend({.num_threads = 1});
  EXPECT_NE(MakeBackend({.num_threads = 1}).backend, nullptr);
  EXPECT_THAT(MakeBackend({.isa = "baseline"}).error, HasSubstr("one at a time"));
  best.backend.reset();
  EXPECT_NE(MakeBackend({.isa = "baseline"}).backend, nullptr);
}

// Describe names the Highway path that the ops take.
TEST(MakeBackend, HidesBetterPathsFromHighway) {
  const int64_t machine = hwy::SupportedTargets();
  for (const std::string& isa : SupportedCpuIsas()) {
    const MadeBackend made = MakeBackend({.num_threads = 1, .isa = isa});
    const int64_t targets = hwy::SupportedTargets();
    const bool has_avx512 = isa.starts_with("avx512") || isa == "amx", has_avx2 = has_avx512 || isa.starts_with("avx");
    EXPECT_EQ((targets & HWY_AVX3) != 0, has_avx512) << isa;
    EXPECT_EQ((targets & HWY_AVX2) != 0, has_avx2) << isa;
    EXPECT_EQ(targets & (HWY_AVX3 - 1), 0) << isa;
  }
  EXPECT_EQ(hwy::SupportedTargets(), machine);
}

TEST(CpuBackendDeathTest, EndsTheProcessOnShapesThatDoNotFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const MadeBackend made = MakeBackend({.num_threads = 1});
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const ConstTensorView part = {rows.data(), DType::kF32, Shape(2, 3)};
  const auto weight = made.backend->PrepareWeight({.parts = {&part, 1}, .release = nullptr});
  std::vector<uint16_t> x(4);
  std::vector<float> out(4);
  const ConstTensorView row = {x.data(), DType::kBF16, Shape(1, 3)}, long_row = {x.data(), DType::kBF16, Shape(1, 4)};
  const TensorView sums = {out.data(), DType::kF32, Shape(1, 2)}, wide_sums = {out.data(), DType::kF32, Shape(1, 3)};
  EXPECT_DEATH(made.backend->MatMul({.x = long_row, .weight = weight.get(), .out = sums}), "check failed: .*args.x");
  EXPECT_DEATH(made.backend->MatMul({.x = row, .weight = weight.get(), .out = wide_sums}), "check failed: .*args.out");
  const int32_t token_id = 2;
  EXPECT_DEATH(made.backend->Embed({.weight = weight.get(), .token_ids = &token_id, .out = wide_sums}),
               "check failed: .*token_id");
}

TEST(CpuBackend, AllocatesZerosAndCopies) {
  const MadeBackend made = MakeBackend({.num_threads = 1});
  for (const size_t num_bytes : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    const Buffer buffer = made.backend->Allocate(num_bytes);
    const auto* bytes = static_cast<const char*>(buffer.get());
    EXPECT_TRUE(std::all_of(bytes, bytes + num_bytes, [](char byte) { return byte == 0; }));
    const std::vector<char> from(num_bytes, 'x');
    made.backend->Copy(buffer.get(), from.data(), num_bytes, CopyKind::kToDevice);
    std::vector<char> to(num_bytes);
    made.backend->Copy(to.data(), buffer.get(), num_bytes, CopyKind::kToHost);
    EXPECT_EQ(to, from);
  }
  made.backend->Allocate(0);
}

TEST(CpuBackend, MultipliesWithAWeightItPrepared) {
  const MadeBackend made = MakeBackend({.num_threads = 2});
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};  // [2, 3]
  const ConstTensorView part = {rows.data(), DType::kF32, Shape(2, 3)};
  const auto weight = made.backend->PrepareWeight({.parts = {&part, 1}, .release = nullptr});
  const std::vector<uint16_t> x = {Bf16FromFloat(1), Bf16FromFloat(10), Bf16FromFloat(100)};
  std::vector<float> out(2);
  made.backend->MatMul({.x = {x.data(), DType::kBF16, Shape(1, 3)},
                        .weight = weight.get(),
                        .out = {out.data(), DType::kF32, Shape(1, 2)}});
  EXPECT_EQ(out, (std::vector<float>{321, 654}));
  const int32_t token_id = 1;
  std::vector<float> row(3);
  made.backend->Embed({.weight = weight.get(), .token_ids = &token_id, .out = {row.data(), DType::kF32, Shape(1, 3)}});
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6}));
}

}  // namespace
}  // namespace foretoken::kernels
