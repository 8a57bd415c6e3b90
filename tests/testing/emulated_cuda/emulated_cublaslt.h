// SPDX-License-Identifier: Apache-2.0
// How the emulated cuBLASLt plays, found in it by name:
//
//   auto* const play = reinterpret_cast<PlayLibrary*>(dlsym(dlopen(path, RTLD_NOW), kPlayLibrary));
//   play(algorithms.data(), algorithms.size());
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretoken::testing {

// As one of the library's: a chain over the inputs, in order, but for what is said here.
struct LibraryAlgorithm {
  int32_t num_splits = 1;     // that it says it cuts the inputs into, and does; they are added in order
  int64_t wrong_row = -1;     // whose first output is the next larger float; -1: none
  int64_t wrong_rows = 0;     // the row count at which sums begin with the last input; 0: none
  int64_t wrong_outputs = 0;  // the same for a count of outputs
  int status = 0;             // of all products; not 0: they are not computed
};

inline constexpr char kPlayLibrary[] = "EmulatedCublasLtPlay";
// From now on the library knows these, and ranks them like this.
using PlayLibrary = void(const LibraryAlgorithm* algorithms, size_t count);

}  // namespace foretoken::testing
