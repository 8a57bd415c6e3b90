// SPDX-License-Identifier: Apache-2.0
// Runs a check on every instruction set that this machine and the compiled kernels support.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "hwy/highway.h"

namespace foretoken::testing {

template <typename Fn>
void ForEachIsa(Fn&& fn) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    fn();
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace foretoken::testing
