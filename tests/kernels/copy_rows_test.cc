// SPDX-License-Identifier: Apache-2.0
// The ops that move rows and logits, which drafters with the target's features need. If this test fails, they draft
// from wrong features.
#include "kernels/cpu/copy_rows.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cap_logits.h"
#include "kernels/cpu/spread_logits.h"
#include "tests/testing/cases/copy_cases.h"
#include "tests/testing/cases/for_each_isa.h"

namespace foretoken::kernels::cpu {
namespace {

TEST(CopyRows, CopiesListedRowsIntoColumns) {
  ThreadPool pool(2);
  testing::ExpectCopiedRows([&](const CopyRowsArgs& args) { CopyRows(args, pool); });
}

TEST(SpreadLogits, GivesMinusInfinityToUnknownIds) {
  ThreadPool pool(2);
  testing::ExpectSpreadLogits([&](const SpreadLogitsArgs& args) { SpreadLogits(args, pool); });
}

TEST(CapLogits, ScalesAndCaps) {
  testing::ForEachIsa([] {
    ThreadPool pool(2);
    testing::ExpectCappedLogits([&](const CapLogitsArgs& args) { CapLogits(args, pool); });
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
