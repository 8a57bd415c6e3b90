// SPDX-License-Identifier: Apache-2.0
// FT_HOST_DEVICE marks what code on a GPU calls too; for a compiler that knows no GPU it is nothing. Constexpr
// functions need no mark: nvcc compiles them for both sides (--expt-relaxed-constexpr).
#pragma once

#ifdef __CUDACC__
#define FT_HOST_DEVICE __host__ __device__
#else
#define FT_HOST_DEVICE
#endif
