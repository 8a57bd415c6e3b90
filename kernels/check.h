// SPDX-License-Identifier: Apache-2.0
// FT_CHECK(condition) states a fact about our own logic. If the condition is false it prints the place and the
// condition and ends the process. It never judges input of a client, a peer or a file: for these we return a status. It
// stands in the lowest layer so that kernels can use it too.
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
