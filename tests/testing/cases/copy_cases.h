// SPDX-License-Identifier: Apache-2.0
// The required behaviour of the ops that move rows and logits, for any backend. Arguments are host pointers.
//
//   TEST(CopyRows, ...) { ExpectCopiedRows([&](const kernels::CopyRowsArgs& args) { CopyRows(args, pool); }); }
#pragma once

#include <functional>

#include "kernels/ops.h"

namespace foretoken::testing {

// Checks all pairs of dtypes, with and without lists of rows. Elements beside the copied columns keep their values.
void ExpectCopiedRows(const std::function<void(const kernels::CopyRowsArgs&)>& copy_rows);

void ExpectSpreadLogits(const std::function<void(const kernels::SpreadLogitsArgs&)>& spread_logits);

// Checks caps and scales, and logits far beyond a cap.
void ExpectCappedLogits(const std::function<void(const kernels::CapLogitsArgs&)>& cap_logits);

}  // namespace foretoken::testing
