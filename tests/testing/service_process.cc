// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/service_process.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {
namespace {

int MetricsPortOf(const std::string& log) {
  const std::string marker = "metrics on port ";
  const size_t begin = log.find(marker);
  return begin == std::string::npos ? 0 : std::atoi(log.c_str() + begin + marker.size());
}

}  // namespace

ServiceProcess::ServiceProcess(const std::string& binary, std::vector<std::string> flags,
                               std::vector<std::string> environment, std::vector<std::string> launcher)
    : binary_(binary), flags_(std::move(flags)), environment_(std::move(environment)), launcher_(std::move(launcher)) {
  Start("127.0.0.1:0");
}

void ServiceProcess::Start(const std::string& listen) {
  std::vector<std::string> command = launcher_;
  command.push_back("/usr/bin/env");
  command.insert(command.end(), environment_.begin(), environment_.end());
  const std::filesystem::path program = std::filesystem::path(FORETOKEN_BINARY_DIR) / binary_;
  command.insert(command.end(), {program, absl::StrCat("--listen=", listen), "--metrics_listen=127.0.0.1:0"});
  const auto is_model = [](const std::string& flag) { return absl::StartsWith(flag, "--model="); };
  if (program.filename() == "foretoken_verifier" && std::ranges::none_of(flags_, is_model)) {
    command.push_back(absl::StrCat("--model=", SourcePath("deploy/demo/target")));
  }
  command.insert(command.end(), flags_.begin(), flags_.end());
  process_ = std::make_unique<ChildProcess>(command, directory_.path() + "/log");
  const std::optional<int> port = process_->WaitForPort();
  metrics_port_ = MetricsPortOf(Log());
  if (!port.has_value() || metrics_port_ == 0) Die("did not start");
  address_ = absl::StrCat("127.0.0.1:", *port);
}

void ServiceProcess::Kill() {
  process_->Signal(SIGKILL);
  process_->Wait();
}

void ServiceProcess::Restart() {
  Kill();
  Start(std::string(address_));
}

int ServiceProcess::Terminate() {
  process_->Signal(SIGTERM);
  return process_->Wait();
}

std::string ServiceProcess::Log() const { return base::ReadFile(directory_.path() + "/log").value_or(""); }

MetricsPage ServiceProcess::Metrics() const {
  absl::StatusOr<MetricsPage> page = ReadMetrics(metrics_port_);
  if (!page.ok()) Die(page.status().message());
  return *std::move(page);
}

void ServiceProcess::Die(absl::string_view why) const {
  std::fprintf(stderr, "%s: %.*s:\n%s\n", binary_.c_str(), static_cast<int>(why.size()), why.data(), Log().c_str());
  std::abort();
}

}  // namespace foretoken::testing
