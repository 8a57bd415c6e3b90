// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics_server.h"

#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "civetweb.h"
#include "common/telemetry/open_metrics.h"
#include "prometheus/text_serializer.h"

namespace foretoken::telemetry {
namespace {

constexpr int kHandled = 1;
constexpr char kMethodNotAllowed[] =
    "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

bool AcceptsOpenMetrics(const mg_connection* connection) {
  const char* const accept = mg_get_header(connection, "Accept");
  return accept != nullptr && absl::StrContains(accept, kOpenMetricsType);
}

void Send(mg_connection* connection, const char* type, const std::string& page) {
  mg_send_http_ok(connection, type, static_cast<long long>(page.size()));
  const bool wants_page = absl::string_view(mg_get_request_info(connection)->request_method) == "GET";
  if (wants_page) mg_write(connection, page.data(), page.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const Metrics& metrics) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(metrics));
  const std::string num_threads = absl::StrCat(kMaxConnections), timeout = absl::StrCat(kMaxRequestMs);
  std::array<const char*, 7> options = {"listening_ports",    address.c_str(), "num_threads", num_threads.c_str(),
                                        "request_timeout_ms", timeout.c_str(), nullptr};
  const mg_callbacks no_callbacks = {};
  std::array<char, 256> error = {};
  mg_init_data init = {.callbacks = &no_callbacks, .user_data = nullptr, .configuration_options = options.data()};
  mg_error_data why = {.code = nullptr, .text = error.data(), .text_buffer_size = error.size()};
  server->context_ = mg_start2(&init, &why);
  if (server->context_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on '", address, "': ", error.data()));
  }
  mg_server_port port = {};
  mg_get_server_ports(server->context_, 1, &port);
  server->port_ = port.port;
  mg_set_request_handler(server->context_, "/metrics$", &MetricsServer::Answer, server.get());
  return server;
}

MetricsServer::~MetricsServer() {
  if (context_ != nullptr) mg_stop(context_);  // waits for the pages that are being sent
}

void MetricsServer::Add(Collect collect) {
  absl::MutexLock lock(&mutex_);
  collects_.push_back(std::move(collect));
}

MetricsServer::Families MetricsServer::CollectAll() const {
  std::vector<Collect> collects;
  {
    absl::MutexLock lock(&mutex_);
    collects = collects_;
  }
  Families families = metrics_.Collect();
  for (const Collect& collect : collects) {
    Families more = collect(families);
    families.insert(families.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return families;
}

int MetricsServer::Answer(mg_connection* connection, void* server) {
  const absl::string_view method = mg_get_request_info(connection)->request_method;
  if (method != "GET" && method != "HEAD") {
    mg_write(connection, kMethodNotAllowed, sizeof(kMethodNotAllowed) - 1);
    return kHandled;
  }
  const MetricsServer& self = *static_cast<const MetricsServer*>(server);
  const Families families = self.CollectAll();
  if (AcceptsOpenMetrics(connection)) {
    Send(connection, absl::StrCat(kOpenMetricsType, "; version=1.0.0; charset=utf-8").c_str(),
         OpenMetricsPage(families, self.metrics_.Exemplars()));
  } else {
    Send(connection, "text/plain; version=0.0.4; charset=utf-8", prometheus::TextSerializer().Serialize(families));
  }
  return kHandled;
}

}  // namespace foretoken::telemetry
