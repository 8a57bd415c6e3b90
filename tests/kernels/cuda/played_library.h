// SPDX-License-Identifier: Apache-2.0
// The cuBLASLt for tests: the machine's library or, in a build with the emulated GPU, a library whose algorithms the
// test sets.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "kernels/cuda/matmul/library_serving.h"
#include "tests/testing/emulated_cuda/emulated_cublaslt.h"

namespace foretoken::kernels::cuda {

inline constexpr char kLibrary[] = FORETOKEN_CUBLASLT;

// Sets the algorithms that the library knows from now on. Returns false if it is the machine's own, which cannot be
// set.
inline bool PlayAlgorithms(std::initializer_list<testing::LibraryAlgorithm> algorithms) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  void* const play = library == nullptr ? nullptr : dlsym(library, testing::kPlayLibrary);
  if (play == nullptr) return false;
  reinterpret_cast<testing::PlayLibrary*>(play)(algorithms.begin(), algorithms.size());
  return true;
}

struct PlayedPace {
  int64_t min_rows = 16;
  bool is_fast = true;  // true: the library's products take less time than ours
};

// Trials time our product before the library's.
inline LibraryOptions LibraryPlayed(const PlayedPace& pace) {
  return {.file = kLibrary,
          .min_rows = pace.min_rows,
          .seconds_of = [is_fast = pace.is_fast, is_ours = false](const std::function<void()>& enqueue) mutable {
            enqueue();
            is_ours = !is_ours;
            return is_ours == is_fast ? 2.0 : 1.0;
          }};
}

}  // namespace foretoken::kernels::cuda
