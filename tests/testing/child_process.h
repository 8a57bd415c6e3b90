// SPDX-License-Identifier: Apache-2.0
// A program that a test runs. The destructor kills it.
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

#include "absl/time/time.h"

namespace foretoken::testing {

class ChildProcess {
 public:
  // The test reads the program's standard output. Standard error is the test's own, or goes to `stderr_path`.
  explicit ChildProcess(const std::vector<std::string>& command, const std::string& stderr_path = {});
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess();  // sends SIGKILL if the program still runs

  // Returns the port of the line "listening on HOST:PORT". Empty if the program ended or 60 s passed without this line.
  std::optional<int> WaitForPort();
  void Signal(int signal);
  pid_t pid() const { return pid_; }
  // The processor time of all its threads, ended ones included. 0 if the program has ended.
  absl::Duration ProcessorTime() const;
  // The program's resident memory now. 0 if the program has ended.
  int64_t MemoryBytes() const;
  // The program's peak memory since the last ForgetPeakMemory, or since its start.
  int64_t PeakMemoryBytes() const;
  void ForgetPeakMemory();
  // Returns the exit code, or 128 + the signal that ended the program.
  int Wait();

 private:
  pid_t pid_ = 0;
  int output_ = -1;  // the reading end
  std::optional<int> exit_code_;
};

}  // namespace foretoken::testing
