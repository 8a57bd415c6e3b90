// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr int kTimeoutMs = 60'000;

std::optional<int> PortOf(const std::string& output) {
  const std::string marker = "listening on ";
  const size_t begin = output.find(marker);
  const size_t end = output.find('\n', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return std::atoi(output.c_str() + output.rfind(':', end) + 1);
}

// A line of /proc/PID/status, which has KiB.
std::optional<int64_t> BytesOf(pid_t pid, const std::string& name) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::atoll(line.c_str() + name.size()) * 1024;
  }
  return std::nullopt;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::string& stderr_path) {
  int ends[2];
  FT_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  FT_CHECK(posix_spawn_file_actions_init(&actions) == 0);
  FT_CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) == 0);
  if (!stderr_path.empty()) {
    FT_CHECK(posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, stderr_path.c_str(),
                                              O_WRONLY | O_CREAT | O_TRUNC, 0644) == 0);
  }
  FT_CHECK(posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  output_ = ends[0];
}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  Wait();
  close(output_);
}

std::optional<int> ChildProcess::WaitForPort() {
  std::string output;
  for (;;) {
    pollfd readable = {.fd = output_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, kTimeoutMs) <= 0) return std::nullopt;
    char buffer[4096];
    const ssize_t length = read(output_, buffer, sizeof(buffer));
    if (length <= 0) return std::nullopt;
    output.append(buffer, static_cast<size_t>(length));
    if (const std::optional<int> port = PortOf(output)) return port;
  }
}

void ChildProcess::Signal(int signal) {
  if (!exit_code_) kill(pid_, signal);
}

absl::Duration ChildProcess::ProcessorTime() const {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return absl::ZeroDuration();
  return absl::DurationFromTimespec(time);
}

int64_t ChildProcess::MemoryBytes() const { return BytesOf(pid_, "VmRSS:").value_or(0); }

int64_t ChildProcess::PeakMemoryBytes() const {
  const std::optional<int64_t> num_bytes = BytesOf(pid_, "VmHWM:");
  FT_CHECK(num_bytes.has_value());  // else the process has ended
  return *num_bytes;
}

void ChildProcess::ForgetPeakMemory() {
  std::ofstream refs(absl::StrCat("/proc/", pid_, "/clear_refs"));
  refs << "5" << std::flush;  // resets the peak to what is resident now
  FT_CHECK(refs.good());
}

int ChildProcess::Wait() {
  if (!exit_code_) {
    int status = 0;
    FT_CHECK(waitpid(pid_, &status, 0) == pid_);
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return *exit_code_;
}

}  // namespace foretoken::testing
