// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/metrics_page.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace foretoken::testing {
namespace {

// Sends the request and returns all bytes until the server closes. Empty if the server cannot be reached.
std::string Exchange(int socket, int port, absl::string_view request) {
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  if (send(socket, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return {};
  std::string answer;
  char buffer[1 << 14];
  for (ssize_t length; (length = recv(socket, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(length));
  }
  return answer;
}

}  // namespace

MetricsPage ParseMetrics(absl::string_view text) {
  MetricsPage page;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t end = line.rfind(' ');
    double value = 0;
    if (line.empty() || line[0] == '#' || end == absl::string_view::npos) continue;
    if (absl::SimpleAtod(line.substr(end + 1), &value)) page[std::string(line.substr(0, end))] = value;
  }
  return page;
}

double SumOf(const MetricsPage& page, absl::string_view name) {
  double sum = 0;
  for (const auto& [key, value] : page) {
    if (absl::string_view(key).substr(0, key.find('{')) == name) sum += value;
  }
  return sum;
}

absl::StatusOr<MetricsPage> ReadMetrics(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string answer = Exchange(socket, port, "GET /metrics HTTP/1.0\r\nConnection: close\r\n\r\n");
  close(socket);
  const size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return absl::UnavailableError(absl::StrCat("no metrics on port ", port));
  return ParseMetrics(absl::string_view(answer).substr(body + 4));
}

}  // namespace foretoken::testing
