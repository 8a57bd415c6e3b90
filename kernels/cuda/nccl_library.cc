// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/nccl_library.h"

#include <dlfcn.h>

namespace foretoken::kernels::cuda {
namespace {

// Writes the symbol's name to `missing` if the library lacks it.
template <typename Function>
bool Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) *missing = name;
  return *function != nullptr;
}

}  // namespace

LoadedNccl LoadNccl(const std::string& file_name) {
  void* const library = dlopen(file_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {std::nullopt, std::string("NCCL: ") + dlerror()};
  NcclLibrary nccl;
  std::string missing;
  const bool has_all =
      Find(library, "ncclCommInitAll", &nccl.comm_init_all, &missing) &&
      Find(library, "ncclCommDestroy", &nccl.comm_destroy, &missing) &&
      Find(library, "ncclCommGetAsyncError", &nccl.comm_get_async_error, &missing) &&
      Find(library, "ncclAllGather", &nccl.all_gather, &missing) && Find(library, "ncclSend", &nccl.send, &missing) &&
      Find(library, "ncclRecv", &nccl.recv, &missing) && Find(library, "ncclGroupStart", &nccl.group_start, &missing) &&
      Find(library, "ncclGroupEnd", &nccl.group_end, &missing) &&
      Find(library, "ncclGetErrorString", &nccl.get_error_string, &missing);
  if (!has_all) return {std::nullopt, "NCCL: " + file_name + " has no " + missing};
  return {nccl, ""};
}

}  // namespace foretoken::kernels::cuda
