// SPDX-License-Identifier: Apache-2.0
// NCCL's functions, found in the machine's library when several GPUs are to share a model: a machine with one GPU needs
// no NCCL. nccl.h describes each function.
#pragma once

#include <nccl.h>

#include <optional>
#include <string>

namespace foretoken::kernels::cuda {

struct NcclLibrary {
  decltype(&ncclCommInitAll) comm_init_all = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
};

struct LoadedNccl {
  std::optional<NcclLibrary> library;
  std::string error;  // if there is no library: its name, and the loader's words
};

// `file_name` in dlopen's form. The library stays loaded until the process ends.
LoadedNccl LoadNccl(const std::string& file_name = "libnccl.so.2");

}  // namespace foretoken::kernels::cuda
