// SPDX-License-Identifier: Apache-2.0
// How a function of an executable calls the library's function that it replaces: the dynamic linker takes the
// executable's function first.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

// Returns the library's function with the name of `function`, which is defined here. The linker gives the name, because
// the name of a method contains the inline namespace of the library's version.
template <typename Function>
Function LibraryFunction(Function function) {
  void* address;  // a pointer to a member function that is not virtual begins with the function's address
  static_assert(sizeof(function) >= sizeof(address));
  std::memcpy(&address, &function, sizeof(address));
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) std::abort();
  address = dlsym(RTLD_NEXT, info.dli_sname);
  if (address == nullptr) std::abort();
  std::memcpy(&function, &address, sizeof(address));
  return function;
}
