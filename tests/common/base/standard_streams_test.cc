// SPDX-License-Identifier: Apache-2.0
// If this test fails, a service dies when the program that reads its log ends, or writes its log into another file.
#include "common/base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace foretoken::base {
namespace {

// In a process of its own, which ends with 0 if `holds`.
template <typename Check>
void ExpectInChild(const Check& holds) {
  EXPECT_EXIT(_exit(holds() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(KeepStandardStreamsDeathTest, AWriteToAPipeWithoutAReaderIsAnError) {
  ExpectInChild([] {
    std::signal(SIGPIPE, SIG_DFL);
    KeepStandardStreams();
    int ends[2];
    if (pipe(ends) != 0 || close(ends[0]) != 0) return false;
    return write(ends[1], "x", 1) == -1 && errno == EPIPE;
  });
}

TEST(KeepStandardStreamsDeathTest, AClosedStreamHasNoOtherFile) {
  for (const auto open_streams : {KeepStandardStreams, OpenStandardStreams}) {
    ExpectInChild([open_streams] {
      for (const int stream : {0, 1, 2}) close(stream);
      open_streams();
      const int next = open("/dev/zero", O_RDONLY);
      return next > 2 && write(1, "x", 1) == 1 && write(2, "x", 1) == 1;
    });
  }
}

// A program of the command line ends with the program that reads its output.
TEST(OpenStandardStreamsDeathTest, LeavesTheSignalOfPipes) {
  ExpectInChild([] {
    std::signal(SIGPIPE, SIG_DFL);
    OpenStandardStreams();
    return std::signal(SIGPIPE, SIG_DFL) == SIG_DFL;
  });
}

TEST(KeepStandardStreamsDeathTest, AnOpenStreamStaysWhatItIs) {
  ExpectInChild([] {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], 1) != 1) return false;
    KeepStandardStreams();
    char byte = 0;
    return write(1, "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x';
  });
}

}  // namespace
}  // namespace foretoken::base
