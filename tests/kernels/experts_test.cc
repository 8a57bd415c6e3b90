// SPDX-License-Identifier: Apache-2.0
// The op of a layer with experts. If this test fails, a mixture-of-experts server emits wrong tokens, or tokens that
// depend on other requests.
#include "kernels/cpu/experts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/make_backend.h"
#include "tests/testing/cases/expert_cases.h"

namespace foretoken::kernels {
namespace {

TEST(Experts, MatchTheirDefinitionOnEveryInstructionSet) {
  for (const std::string& isa : SupportedCpuIsas()) {
    testing::ExpectExpertsAsDefined(*MakeBackend({.num_threads = 2, .isa = isa}).backend);
  }
}

// Also in a numeric mode with integers.
TEST(Experts, GiveARowTheSameBitsInEveryBatch) {
  for (const Quantization& quantization : {Quantization(), Quantization(WeightQuantization::kInt4, 32, true)}) {
    const MadeBackend made = MakeBackend({.num_threads = 2});
    testing::ExpectRowsAsAlone(testing::RandomExperts(*made.backend, {}, [&](int32_t) { return quantization; }), 70);
  }
}

TEST(Experts, MatchTheirDefinitionWithBiasesAndACutGate) {
  testing::ExpectExpertsWithBiasesAndACutGate(*MakeBackend({.num_threads = 2}).backend);
}

TEST(Experts, AreAskedForOnceEachInAscendingOrder) {
  const MadeBackend made = MakeBackend({.num_threads = 2});
  const testing::RandomExperts experts(*made.backend);
  testing::ExpertRows rows(experts.sizes(), 70);
  std::vector<int32_t> asked;
  const auto set = made.backend->PrepareExperts(6, [&](int32_t expert) {
    asked.push_back(expert);
    return experts.expert(expert, /*has_biases=*/false);
  });
  made.backend->Experts({.x = {rows.x.data(), DType::kBF16, Shape(rows.num_rows, rows.sizes.E)},
                         .scores = {rows.scores.data(), DType::kF32, Shape(rows.num_rows, rows.sizes.N)},
                         .experts = set.get(),
                         .num_chosen = 3,
                         .out = {rows.out.data(), DType::kF32, Shape(rows.num_rows, rows.sizes.E)}});
  EXPECT_EQ(asked, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Experts, TieScoresGoToTheLowerExpert) {
  testing::ExpectTiesToTheLowerExpert(*MakeBackend({.num_threads = 1}).backend);
}

TEST(Experts, ShowAScoreThatIsNoNumberInItsRowAlone) {
  testing::ExpectAScoreThatIsNoNumberInItsRowAlone(*MakeBackend({.num_threads = 1}).backend);
}

}  // namespace
}  // namespace foretoken::kernels
