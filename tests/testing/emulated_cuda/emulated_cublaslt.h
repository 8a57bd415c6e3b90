// SPDX-License-Identifier: Apache-2.0
// Sets the algorithms of the emulated cuBLASLt, by a function that tests look up by name:
//
//   auto* const play = reinterpret_cast<PlayLibrary*>(dlsym(dlopen(path, RTLD_NOW), kPlayLibrary));
//   play(algorithms.data(), algorithms.size());
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace foretoken::testing {

// One algorithm of the library: a chain over the inputs, in order, with these differences.
struct LibraryAlgorithm {
  int32_t num_splits = 1;                // parts of the inputs, as stated and as computed; added in order
  std::optional<int64_t> wrong_row;      // this row's first output is the next larger float
  std::optional<int64_t> wrong_rows;     // at this row count sums begin with the last input
  std::optional<int64_t> wrong_outputs;  // at this output count likewise
  bool begins_with_out = false;          // sums that are added to the output begin with it
  bool flushes_subnormals = false;       // sums below the smallest normal float are 0
  int status = 0;                        // of all products; if not 0, nothing is computed
};

inline constexpr char kPlayLibrary[] = "EmulatedCublasLtPlay";
// Sets the library's algorithms, the preferred one first.
using PlayLibrary = void(const LibraryAlgorithm* algorithms, size_t count);

}  // namespace foretoken::testing
