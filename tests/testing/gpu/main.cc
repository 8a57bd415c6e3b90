// SPDX-License-Identifier: Apache-2.0
// Runs tests that need a GPU, all of them; without one it says so, and what gtest says of a skipped test.
#include <gtest/gtest.h>

#include <iostream>

#include "kernels/make_backend.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    const foretoken::kernels::MadeBackend made = foretoken::kernels::MakeBackend({.device = "cuda"});
    if (made.backend == nullptr) {
      std::cout << "[  SKIPPED ] " << made.error << "\n";
      return 0;
    }
  }
  return RUN_ALL_TESTS();
}
