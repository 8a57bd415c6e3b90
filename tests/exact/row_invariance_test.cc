// SPDX-License-Identifier: Apache-2.0
// Row invariance (E1): the logits of a token are a pure function of its context tokens, bit for bit. The tests cover
// every model, every instruction set, and every way in which the engine computes a row
// (tests/testing/models/row_invariance.h). If a test fails, a client's tokens depend on the batch, on speculation or on
// the prefix cache.
//
// Tests with Long in their names run every instruction set, and all sizes on the best one. The other tests run a
// selection.
#include "tests/testing/models/row_invariance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/make_backend.h"
#include "tests/testing/models/exact_models.h"
#include "tests/testing/models/known_sequence.h"
#include "tests/testing/models/test_device.h"

namespace foretoken::testing {
namespace {

struct Case {
  ExactModel model;
  std::string isa;
  std::string mode;  // of numbers; empty: bf16
  kernels::QuantizationOptions quantization;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.model.name << " on " << c.isa << " " << c.mode; }
};

// "avx512_vnni" multiplies rows of bf16 with the kernels of "avx512", and rows of int8 with those of "avx512_bf16".
// "avx_vnni" has kernels of its own for rows of int8, and is "avx2" otherwise. The others run anyway on a machine with
// a better instruction set, so two modes are enough there.
bool IsVnni(const std::string& isa) { return isa == "avx512_vnni" || isa == "avx_vnni"; }

// The instruction sets, the best first. A GPU has one entry.
std::vector<std::string> Isas() {
  return TestDevice() == "cpu" ? kernels::SupportedCpuIsas() : std::vector<std::string>{"auto"};
}

std::vector<Case> CasesOnBestIsa() {
  std::vector<Case> cases;
  for (const ExactModel& model : AllExactModels()) cases.push_back({model, Isas().front()});
  return cases;
}

// Second shapes of families, whose ops are those of the first. They run on the best instruction set only, and there
// with a selection of sizes.
constexpr const char* kSecondShapes[] = {
    "mistral-full",   "qwen3-tied", "gemma2-untied",  "gemma3-linear",   "granite-bias",  "phi3",
    "smollm3-listed", "olmo2-bias", "mixtral-window", "qwen3-moe-mixed", "glm4-moe-plain"};

bool IsSecondShape(const std::string& model) {
  return std::ranges::find(kSecondShapes, model) != std::end(kSecondShapes);
}

std::vector<Case> CasesOnEveryIsa() {
  std::vector<Case> cases = CasesOnBestIsa();
  const auto isas = Isas();
  for (size_t i = 1; i < isas.size(); ++i) {
    if (IsVnni(isas[i])) continue;
    for (const ExactModel& model : AllExactModels()) {
      if (!IsSecondShape(model.name)) cases.push_back({model, isas[i]});
    }
  }
  return cases;
}

// Matrices of integers and K/V in 8 bits. Only the CPU has rows of integers.
std::vector<Case> QuantizedCases(const std::vector<std::string>& isas) {
  std::vector<Case> cases;
  const bool has_int8_rows = TestDevice() == "cpu";
  const auto models = AllExactModels();
  const ExactModel& model = *std::ranges::find(models, "odd_heads", &ExactModel::name);
  for (const std::string& isa : isas) {
    if (has_int8_rows) {
      cases.push_back({model, isa, "w8a8", {.weights = "int8", .group_size = 128, .activations = "int8"}});
      cases.push_back({model, isa, "w4a8", {.weights = "int4", .head = "int4", .activations = "int8"}});
    }
    if (IsVnni(isa) && isa != isas.front()) continue;
    cases.push_back({model, isa, "w8a16", {.weights = "int8", .head = "int8"}});
    cases.push_back({model, isa, "w4a16", {.weights = "int4", .group_size = 64}});
    cases.push_back({model, isa, "kv_int8", {.kv_cache = "int8"}});
    cases.push_back({model, isa, "kv_fp8", {.kv_cache = "fp8"}});
    for (const ExactModel& stored : StoredExactModels()) {
      // The large one takes minutes without wide vectors. These are the two kernels for integers.
      if (stored.name == "q4_k_m" && isa != isas.front() && isa != "avx2") continue;
      cases.push_back({stored, isa, "a16"});
      if (has_int8_rows) cases.push_back({stored, isa, "a8", {.activations = "int8"}});
    }
  }
  return cases;
}

std::string NameOfCase(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model.name + "_" + info.param.isa;
  if (!info.param.mode.empty()) name += "_" + info.param.mode;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class RowInvariance : public ::testing::TestWithParam<Case> {
 protected:
  static LoadedModel Load(int num_threads = 1) {
    return LoadExactModel(GetParam().model, {.num_threads = num_threads,
                                             .isa = GetParam().isa,
                                             .quantization = GetParam().quantization,
                                             .num_blocks = kExactBlocks});
  }
};

class RowInvarianceLong : public RowInvariance {
 protected:
  static bool IsOnBestIsa() { return GetParam().isa == Isas().front(); }
};

INSTANTIATE_TEST_SUITE_P(Models, RowInvariance, ::testing::ValuesIn(CasesOnBestIsa()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Models, RowInvarianceLong, ::testing::ValuesIn(CasesOnEveryIsa()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Modes, RowInvariance, ::testing::ValuesIn(QuantizedCases({Isas().front()})), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Modes, RowInvarianceLong, ::testing::ValuesIn(QuantizedCases(Isas())), NameOfCase);

// The K/V of 150 tokens spans three attention tiles and is longer than any window.
constexpr int32_t kNumPromptTokens = 150;

std::vector<KnownSequence> KnownSequences(LoadedModel& model) {
  const std::vector<std::vector<int32_t>> trees = {
      RandomParents(24, 1), StarParents(15), ChainParents(20), CombParents(21), {}, RandomParents(40, 2)};
  std::vector<KnownSequence> known;
  for (const std::vector<int32_t>& parents : trees) {
    const auto i = static_cast<int32_t>(known.size());
    known.push_back(DecodePlainly(model, {.num_tokens = 30 + 25 * i, .parents = parents, .seed = 40u + i}));
  }
  return known;
}

std::vector<KnownSequence> SequencesWithACommonBeginning(LoadedModel& model) {
  std::vector<KnownSequence> known = {DecodePlainly(model, {.num_tokens = kNumPromptTokens, .seed = 50})};
  for (const int32_t num_common : {40, 90}) {
    const auto begin = known[0].tokens.begin();
    known.push_back(
        DecodePlainly(model, {.prefix = {begin, begin + num_common}, .num_tokens = 130, .seed = 50u + num_common}));
  }
  return known;
}

TEST_P(RowInvariance, HoldsInBatchesOf1To64Sequences) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckBatchSizes(model, Iota(1, 64)));
}

TEST_P(RowInvariance, HoldsForPromptChunks) {
  LoadedModel model = Load();
  const KnownSequence known = DecodePlainly(model, {.num_tokens = kNumPromptTokens});
  EXPECT_TRUE(CheckChunkSizes(model, known, std::vector<int32_t>{1, 2, 3, 5, 8, 12, 13, 16, 17, 31, 63, 64, 65, 149}));
}

TEST_P(RowInvariance, HoldsForTrees) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckRandomTrees(model, std::vector<int32_t>{1, 40, 63, 64, 101}, 40));
}

TEST_P(RowInvariance, HoldsForBlockLayouts) {
  LoadedModel model = Load();
  const KnownSequence known = DecodePlainly(model, {.num_tokens = kNumPromptTokens});
  EXPECT_TRUE(CheckBlockLayouts(model, known, 5));
}

TEST_P(RowInvariance, HoldsForMovedRows) {
  LoadedModel model = Load();
  const KnownSequence known = DecodePlainly(model, {.num_tokens = kNumPromptTokens});
  EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kApart));
  EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kOverlapping));
}

TEST_P(RowInvariance, HoldsForCachedPrefixesAndAfterPreemption) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckReusedBlocks(model, SequencesWithACommonBeginning(model), 20));
}

TEST_P(RowInvariance, HoldsForMixedBatchesAndThreads) {
  LoadedModel single = Load();
  const std::vector<KnownSequence> known = KnownSequences(single);
  EXPECT_TRUE(CheckMixedBatches(single, known, 10));
  LoadedModel dual = Load(/*num_threads=*/2);
  EXPECT_TRUE(CheckMixedBatches(dual, known, 10));
}

TEST_P(RowInvarianceLong, HoldsInBatchesOf1To64Sequences) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckBatchSizes(model, Iota(1, 64)));
}

// All sizes on the best instruction set. Elsewhere, and of second shapes and of the large model, only sizes around the
// limits of tiles and blocks.
TEST_P(RowInvarianceLong, HoldsForPromptChunksOf1To512) {
  LoadedModel model = Load();
  const KnownSequence known = DecodePlainly(model, {.num_tokens = 520});
  std::vector<int32_t> sizes = Iota(1, 512);
  if (!IsOnBestIsa() || IsSecondShape(GetParam().model.name) || GetParam().model.name == "q4_k_m") {
    sizes = Iota(1, 34);
    for (const int32_t size : {47, 63, 64, 65, 96, 100, 127, 128, 129, 200, 255, 256, 257, 511, 512}) {
      sizes.push_back(size);
    }
  }
  EXPECT_TRUE(CheckChunkSizes(model, known, sizes));
}

TEST_P(RowInvarianceLong, HoldsForTreesOfEveryShape) {
  LoadedModel model = Load();
  const std::vector<int32_t> lengths =
      IsOnBestIsa() ? std::vector<int32_t>{1, 16, 40, 63, 64, 101, 200} : std::vector<int32_t>{1, 63, 101};
  for (const int32_t num_tokens : lengths) {
    const std::vector<std::vector<int32_t>> trees = {StarParents(64),
                                                     ChainParents(70),
                                                     CombParents(64),
                                                     BushParents(62, 2),
                                                     BushParents(39, 3),
                                                     RandomParents(8, num_tokens),
                                                     RandomParents(33, num_tokens),
                                                     RandomParents(64, num_tokens)};
    for (size_t i = 0; i < trees.size(); ++i) {
      const KnownSequence known = DecodePlainly(model, {.num_tokens = num_tokens, .parents = trees[i], .seed = 3});
      EXPECT_TRUE(CheckTree(model, known)) << "tree " << i << " below " << num_tokens << " tokens";
    }
  }
}

TEST_P(RowInvarianceLong, HoldsForBlockLayouts) {
  LoadedModel model = Load();
  const KnownSequence known = DecodePlainly(model, {.num_tokens = 520});
  EXPECT_TRUE(CheckBlockLayouts(model, known, 20));
}

TEST_P(RowInvarianceLong, HoldsForMovedRows) {
  LoadedModel model = Load();
  for (const uint32_t seed : {1, 2, 3}) {
    const KnownSequence known = DecodePlainly(model, {.num_tokens = 300, .seed = seed});
    EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kApart)) << "seed " << seed;
    EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kOverlapping)) << "seed " << seed;
  }
}

TEST_P(RowInvarianceLong, HoldsForCachedPrefixesAndAfterPreemption) {
  LoadedModel model = Load();
  EXPECT_TRUE(CheckReusedBlocks(model, SequencesWithACommonBeginning(model), 150));
}

TEST_P(RowInvarianceLong, HoldsForMixedBatchesAndThreads) {
  LoadedModel single = Load();
  const std::vector<KnownSequence> known = KnownSequences(single);
  for (const int num_threads : {1, 2, 3, 5}) {
    LoadedModel model = Load(num_threads);
    EXPECT_TRUE(CheckMixedBatches(model, known, 40)) << num_threads << " threads";
  }
}

}  // namespace
}  // namespace foretoken::testing
