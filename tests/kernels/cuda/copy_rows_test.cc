// SPDX-License-Identifier: Apache-2.0
// As tests/kernels/copy_rows_test.cc, on a device.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/copy_cases.h"

namespace foretoken::kernels::cuda {
namespace {

using CopyRowsTest = OnDevice;
using CapLogitsTest = OnDevice;
using SpreadLogitsTest = OnDevice;

TEST_F(CopyRowsTest, CopiesListedRowsIntoColumns) {
  testing::ExpectCopiedRows([&](const CopyRowsArgs& args) { RunCopyRows(args); });
}

TEST_F(SpreadLogitsTest, GivesMinusInfinityToUnknownIds) {
  testing::ExpectSpreadLogits([&](const SpreadLogitsArgs& args) { RunSpreadLogits(args); });
}

TEST_F(CapLogitsTest, ScalesAndCaps) {
  testing::ExpectCappedLogits([&](const CapLogitsArgs& args) { RunCapLogits(args); });
}

}  // namespace
}  // namespace foretoken::kernels::cuda
