// SPDX-License-Identifier: Apache-2.0
// The required behaviour of the activations, for any backend. Arguments are host pointers.
//
//   TEST(Activate, ...) { ExpectActivated([&](const kernels::ActivateArgs& args) { Activate(args, pool); }); }
#pragma once

#include <functional>

#include "kernels/ops.h"

namespace foretoken::testing {

// Checks every function, with and without a bias, stored and added, in both dtypes, for small and large values.
void ExpectActivated(const std::function<void(const kernels::ActivateArgs&)>& activate);

// Checks states and outputs of a recurrent cell.
void ExpectRecurrentCells(const std::function<void(const kernels::RecurrentCellArgs&)>& step);

}  // namespace foretoken::testing
