// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/telemetry/open_metrics.h"
#include "prometheus/text_serializer.h"

namespace foretoken::telemetry {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Acceptor = asio::ip::tcp::acceptor;
using Socket = asio::ip::tcp::socket;
using Endpoint = asio::ip::tcp::endpoint;
using Error = boost::system::error_code;
using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;
using MakePage = std::function<void(bool is_open_metrics, Response& response)>;

Response Answer(const Request& request, const MakePage& make_page) {
  Response response(http::status::ok, request.version());
  response.keep_alive(false);
  const absl::string_view target(request.target().data(), request.target().size());
  const absl::string_view accept(request[http::field::accept].data(), request[http::field::accept].size());
  if (target.substr(0, target.find('?')) != "/metrics") {
    response.result(http::status::not_found);
    response.set(http::field::content_type, "text/plain; charset=utf-8");
    response.body() = "metrics are at /metrics\n";
  } else if (request.method() != http::verb::get && request.method() != http::verb::head) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET, HEAD");
  } else {
    make_page(absl::StrContains(accept, kOpenMetricsType), response);
  }
  response.prepare_payload();
  if (request.method() == http::verb::head) response.body().clear();  // the headers tell its length
  return response;
}

// Throws where the address cannot be used.
Acceptor Listen(asio::io_context& context, const Endpoint& endpoint) {
  Acceptor acceptor(context);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(Acceptor::reuse_address(true));
  if (endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(false));
  acceptor.bind(endpoint);
  acceptor.listen();
  return acceptor;
}

// Listens on every address of the host. Throws where one is in use, or where none can be used.
std::vector<Acceptor> Listen(asio::io_context& context, const std::string& host, const std::string& port) {
  const auto found = asio::ip::tcp::resolver(context).resolve(host, port, asio::ip::tcp::resolver::passive);
  const std::set<Endpoint> endpoints(found.begin(), found.end());  // a resolver may give one twice
  std::vector<Acceptor> acceptors;
  Error last_error;
  for (Endpoint endpoint : endpoints) {
    if (!acceptors.empty()) endpoint.port(acceptors.front().local_endpoint().port());  // port 0 is chosen once
    try {
      acceptors.push_back(Listen(context, endpoint));
    } catch (const boost::system::system_error& error) {
      if (error.code() == asio::error::address_in_use) throw;
      last_error = error.code();  // as for ::1 on a machine without IPv6
    }
  }
  if (acceptors.empty()) throw boost::system::system_error(last_error);
  return acceptors;
}

std::vector<Acceptor> Listen(asio::io_context& context, const std::string& address) {
  const absl::string_view host = base::HostOf(address);
  const std::string port = address.substr(address.rfind(':') + 1);
  if (host != "[::]" && host != "0.0.0.0") return Listen(context, std::string(base::WithoutBrackets(host)), port);
  try {
    return Listen(context, "::", port);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::address_in_use) throw;
    return Listen(context, "0.0.0.0", port);  // a machine without IPv6
  }
}

}  // namespace

// A connection, which has one request. It lives as long as something of it is awaited.
class MetricsServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, const MakePage& make_page) : stream_(std::move(socket)), make_page_(make_page) {
    stream_.expires_after(absl::ToChronoMilliseconds(MetricsServer::kMaxTime));
    request_.header_limit(MetricsServer::kMaxRequestBytes);
    request_.body_limit(MetricsServer::kMaxRequestBytes);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Serve() {
    http::async_read_header(stream_, buffer_, request_, [self = shared_from_this()](Error error, size_t) {
      if (error) return;
      self->has_request_ = true;
      self->response_ = Answer(self->request_.get(), self->make_page_);
      http::async_write(self->stream_, self->response_, [self](Error, size_t) {
        Error ignored;
        self->stream_.socket().shutdown(Socket::shutdown_send, ignored);
      });
    });
  }
  void Close() { stream_.close(); }
  bool has_request() const { return has_request_; }

 private:
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{MetricsServer::kMaxRequestBytes};
  http::request_parser<http::empty_body> request_;
  bool has_request_ = false;  // all of it is here
  Response response_;
  const MakePage& make_page_;
};

// Accepts connections and serves them, on one thread. It accepts every connection, because a client that renews silent
// connections would otherwise make all others wait.
struct MetricsServer::Listener {
  Listener(const std::string& address, MakePage page)
      : make_page(std::move(page)), acceptors(Listen(context, address)) {
    for (Acceptor& acceptor : acceptors) Accept(acceptor);
    thread = std::thread([this] { context.run(); });
  }
  ~Listener() {
    context.stop();
    thread.join();
  }

  void Accept(Acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](const Error& error, Socket socket) {
      if (error) {  // as without a file descriptor
        const auto pause = std::make_shared<asio::steady_timer>(context, std::chrono::milliseconds(100));
        return pause->async_wait([this, &acceptor, pause](const Error&) { Accept(acceptor); });
      }
      MakeRoom();
      const auto connection = std::make_shared<Connection>(std::move(socket), make_page);
      connections.push_back(connection);
      connection->Serve();
      Accept(acceptor);
    });
  }
  // An honest client sends its request at once, so the oldest connection without one is the first to go.
  void MakeRoom() {
    std::erase_if(connections, [](const auto& connection) { return connection.expired(); });
    if (connections.size() < kMaxConnections) return;
    auto victim = std::ranges::find_if(connections, [](const auto& c) { return !c.lock()->has_request(); });
    if (victim == connections.end()) victim = connections.begin();
    victim->lock()->Close();
    connections.erase(victim);
  }

  const MakePage make_page;
  std::vector<std::weak_ptr<Connection>> connections;  // the oldest first; each owns itself while it is served
  asio::io_context context{1};
  std::vector<Acceptor> acceptors;  // one per address
  std::thread thread;
};

MetricsServer::MetricsServer(const Metrics& metrics) : metrics_(metrics) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const Metrics& metrics) {
  if (address.starts_with(':') || !base::PortOf(address).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics_listen: expected HOST:PORT with a port of 0 to 65535, got '", address, "'"));
  }
  std::unique_ptr<MetricsServer> server(new MetricsServer(metrics));
  const auto make_page = [&self = *server](bool is_open_metrics, Response& response) {
    const Families families = self.CollectAll();
    if (is_open_metrics) {
      response.set(http::field::content_type, absl::StrCat(kOpenMetricsType, "; version=1.0.0; charset=utf-8"));
      response.body() = OpenMetricsPage(families, self.metrics_.Exemplars());
    } else {
      response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
      response.body() = prometheus::TextSerializer().Serialize(families);
    }
  };
  try {
    server->listener_ = std::make_unique<Listener>(address, make_page);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on '", address, "': ", error.what()));
  }
  server->port_ = server->listener_->acceptors.front().local_endpoint().port();
  return server;
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

}  // namespace foretoken::telemetry
