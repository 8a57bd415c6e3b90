// SPDX-License-Identifier: Apache-2.0
#include "common/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

#include "kernels/check.h"

namespace foretoken::base {

void OpenStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1) continue;
    FT_CHECK(open("/dev/null", O_RDWR) == stream);  // the lowest number that is free
  }
}

// The loader calls this before the initialisers of libraries. They open files before main: one of gRPC's makes an
// eventfd.
[[gnu::section(".preinit_array"), gnu::used]] void (*const open_before_libraries)() = OpenStandardStreams;

void KeepStandardStreams() {
  FT_CHECK(std::signal(SIGPIPE, SIG_IGN) != SIG_ERR);
  OpenStandardStreams();
}

}  // namespace foretoken::base
