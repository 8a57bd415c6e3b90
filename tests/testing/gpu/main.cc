// SPDX-License-Identifier: Apache-2.0
// Runs all tests that need a GPU. Without a GPU it prints the reason in the form of a skipped test.
#include <gtest/gtest.h>

#include <iostream>

#include "kernels/make_backend.h"
#include "tests/testing/models/test_device.h"

int main(int argc, char** argv) {
  foretoken::testing::TestDevice() = "cuda";  // before parameters are listed, which ask for it
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
