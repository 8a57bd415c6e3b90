// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/service_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace foretoken {
namespace {

std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
  EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), request.size());
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, static_cast<size_t>(n));
  close(fd);
  return answer;
}

// Has the flag already.
bool Names(const std::vector<std::string>& flags, absl::string_view name) {
  for (const std::string& flag : flags) {
    if (absl::StartsWith(flag, absl::StrCat(name, "="))) return true;
  }
  return false;
}

int MetricsPortOf(const std::string& log) {
  const std::string marker = "metrics on port ";
  const size_t begin = log.find(marker);
  return begin == std::string::npos ? 0 : std::atoi(log.c_str() + begin + marker.size());
}

}  // namespace

ServiceProcess::ServiceProcess(const std::string& binary, std::vector<std::string> flags)
    : binary_(binary), flags_(std::move(flags)) {
  Start("127.0.0.1:0");
}

void ServiceProcess::Start(const std::string& listen) {
  std::vector<std::string> command = {absl::StrCat(FORETOKEN_BINARY_DIR, "/", binary_),
                                      absl::StrCat("--listen=", listen), "--metrics_listen=127.0.0.1:0"};
  if (binary_ == "foretoken_verifier" && !Names(flags_, "--model")) {
    command.push_back(absl::StrCat("--model=", testing::SourcePath("deploy/demo/target")));
  }
  command.insert(command.end(), flags_.begin(), flags_.end());
  process_ = std::make_unique<testing::ChildProcess>(command, directory_.path() + "/log");
  const std::optional<int> port = process_->WaitForPort();
  EXPECT_TRUE(port.has_value()) << binary_ << " did not start: " << Log();
  address_ = absl::StrCat("127.0.0.1:", port.value_or(0));
  metrics_port_ = MetricsPortOf(Log());
  EXPECT_GT(metrics_port_, 0) << Log();
}

void ServiceProcess::Restart() {
  process_->Signal(SIGKILL);
  process_->Wait();
  const std::string before = address_;
  Start(before);
  EXPECT_EQ(address_, before);
}

int ServiceProcess::Terminate() {
  process_->Signal(SIGTERM);
  return process_->Wait();
}

std::string ServiceProcess::Log() const {
  std::ifstream file(directory_.path() + "/log");
  return {std::istreambuf_iterator<char>(file), {}};
}

double ServiceProcess::Metric(absl::string_view name) const {
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(HttpGet(metrics_port_, "/metrics"), '\n')) {
    const size_t end = line.find_first_of("{ ");
    if (line.substr(0, end) == name) sum += std::atof(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return sum;
}

client::GenerationClient Connect(const ServiceProcess& verifier) {
  return client::GenerationClient::Connect({.target = verifier.address()}).value();
}

int NumConnected(client::GenerationClient& client) {
  const auto info = client.GetModelInfo();
  int num_connected = 0;
  for (const auto& proposer : info.value().proposers()) num_connected += static_cast<int>(proposer.num_connected());
  return num_connected;
}

}  // namespace foretoken
