// SPDX-License-Identifier: Apache-2.0
// The activations of drafters without attention. If this test fails, they draft from wrong states.
#include "kernels/cpu/activate.h"

#include <gtest/gtest.h>

#include "kernels/cpu/recurrent_cell.h"
#include "tests/testing/cases/activate_cases.h"

namespace foretoken::kernels::cpu {
namespace {

TEST(Activate, ComputesTheFunctions) {
  ThreadPool pool(2);
  testing::ExpectActivated([&](const ActivateArgs& args) { Activate(args, pool); });
}

TEST(RecurrentCell, KeepsItsStateAsItsGateSays) {
  ThreadPool pool(2);
  testing::ExpectRecurrentCells([&](const RecurrentCellArgs& args) { RecurrentCell(args, pool); });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
