// SPDX-License-Identifier: Apache-2.0
// How the emulated cuBLASLt plays, found in it by name:
//
//   auto* const play = reinterpret_cast<PlayLibrary*>(dlsym(dlopen(path, RTLD_NOW), kPlayLibrary));
//   play(algorithms.data(), algorithms.size());
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace foretoken::testing {

// As one of the library's: a chain over the inputs, in order, but for what is said here.
struct LibraryAlgorithm {
  int32_t num_splits = 1;                // that it says it cuts the inputs into, and does; they are added in order
  std::optional<int64_t> wrong_row;      // whose first output is the next larger float
  std::optional<int64_t> wrong_rows;     // the row count at which sums begin with the last input
  std::optional<int64_t> wrong_outputs;  // the same for a count of outputs
  bool begins_with_out = false;          // sums to be added to the output begin with it
  bool flushes_subnormals = false;       // sums below the smallest normal float are 0
  int status = 0;                        // of all products; not 0: they are not computed
};

inline constexpr char kPlayLibrary[] = "EmulatedCublasLtPlay";
// From now on the library knows these, and ranks them like this.
using PlayLibrary = void(const LibraryAlgorithm* algorithms, size_t count);

}  // namespace foretoken::testing
