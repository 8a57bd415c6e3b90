// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that kernels/cuda uses, among threads of the host, which share memory. See cuda_runtime.h beside it.
// emulated_nccl.cc is a shared library, because the backend loads NCCL as a shared library.
//
// A call returns after its peers have made theirs and all bytes have moved. If the calls or sizes of ranks differ,
// which NCCL forbids, the process ends.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

// NOLINTBEGIN(bugprone-reserved-identifier): the names are NCCL's
struct ncclComm;
using ncclComm_t = ncclComm*;
enum ncclResult_t { ncclSuccess = 0, ncclInvalidArgument = 4, ncclRemoteError = 6 };
enum ncclDataType_t { ncclUint8 = 1 };

extern "C" {
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int num_devices, const int* devices);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
const char* ncclGetErrorString(ncclResult_t result);
}
// NOLINTEND(bugprone-reserved-identifier)
