// SPDX-License-Identifier: Apache-2.0
// While it lives, no file of the process grows beyond so many bytes. A write beyond fails with "File too large", as it
// would with another error on a full disk.
//
//   const FileSizeLimit limit(100);
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "kernels/check.h"

namespace foretoken::testing {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t max_bytes) : former_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    FT_CHECK(::getrlimit(RLIMIT_FSIZE, &former_) == 0);
    const rlimit limit = {.rlim_cur = max_bytes, .rlim_max = former_.rlim_max};
    FT_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    FT_CHECK(::setrlimit(RLIMIT_FSIZE, &former_) == 0);
    std::signal(SIGXFSZ, former_handler_);
  }

 private:
  void (*former_handler_)(int);
  rlimit former_ = {};
};

}  // namespace foretoken::testing
