// SPDX-License-Identifier: Apache-2.0
// A program run by a test, killed with it.
//
//   ChildProcess verifier({BinaryPath("foretoken_verifier"), "--model=...", "--listen=127.0.0.1:0"});
//   const int port = verifier.WaitForPort();
//   verifier.Signal(SIGTERM);
//   EXPECT_EQ(verifier.Wait(), 0);
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace foretoken::testing {

class ChildProcess {
 public:
  // Standard output is read by the test; standard error is the test's own, or goes to `stderr_path`.
  explicit ChildProcess(const std::vector<std::string>& command, const std::string& stderr_path = {});
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess();  // SIGKILL, where it still runs

  // The port in the line "listening on HOST:PORT". Nothing when the program ended or 60 s passed without one.
  std::optional<int> WaitForPort();
  void Signal(int signal);
  // The most memory that it has had at once since the last ForgetPeakMemory, or since its start.
  int64_t PeakMemoryBytes() const;
  void ForgetPeakMemory();
  // The exit code, or 128 + the signal that ended it.
  int Wait();

 private:
  pid_t pid_ = 0;
  int output_ = -1;  // reading end
  std::optional<int> exit_code_;
};

}  // namespace foretoken::testing
