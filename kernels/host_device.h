// SPDX-License-Identifier: Apache-2.0
// FT_HOST_DEVICE marks functions that GPU code calls too. For a compiler without GPU support it is empty. Constexpr
// functions need no mark: nvcc compiles them for both sides (--expt-relaxed-constexpr).
#pragma once

#ifdef __CUDACC__
#define FT_HOST_DEVICE __host__ __device__
#else
#define FT_HOST_DEVICE
#endif
