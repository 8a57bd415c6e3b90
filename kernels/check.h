// SPDX-License-Identifier: Apache-2.0
// FT_CHECK(condition): our own logic may not fail. Prints the place and the condition and ends the process.
// Never for what a client, a peer or a file sent: that is a status. Lives on the ground floor so that kernels have it
// too.
#pragma once

#include <cstdio>
#include <cstdlib>

#define FT_CHECK(condition)                                                              \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
