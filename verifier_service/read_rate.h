// SPDX-License-Identifier: Apache-2.0
// How fast this machine reads memory: the bound of every step that reads all weights.
#pragma once

#include <cstddef>

namespace foretoken::verifier {

// Bytes per second at which the CPU backend's threads read a buffer again and again; `num_threads` as in its options.
// The buffer has `num_bytes`, but at most 256 MiB or 32 MiB for each thread, and is freed. What fits in caches is read
// from them, as weights of that size are.
// Time: about 0.2 s.
double MeasureReadRate(size_t num_bytes, int num_threads);

}  // namespace foretoken::verifier
