// SPDX-License-Identifier: Apache-2.0
// As tests/kernels/activate_test.cc, on a device.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/activate_cases.h"

namespace foretoken::kernels::cuda {
namespace {

using ActivateTest = OnDevice;

TEST_F(ActivateTest, ComputesTheFunctions) {
  testing::ExpectActivated([&](const ActivateArgs& args) { RunActivate(args); });
}

TEST_F(ActivateTest, StepsARecurrentCell) {
  testing::ExpectRecurrentCells([&](const RecurrentCellArgs& args) { RunRecurrentCell(args); });
}

}  // namespace
}  // namespace foretoken::kernels::cuda
