// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/service_processes.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

namespace foretoken::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

std::optional<int> MetricsPortIn(const std::string& log) {
  const std::string kMarker = "metrics on port ";
  const size_t at = log.find(kMarker);
  if (at == std::string::npos) return std::nullopt;
  return std::atoi(log.c_str() + at + kMarker.size());
}

}  // namespace

absl::StatusOr<ServiceProcesses::Address> ServiceProcesses::Launch(const std::string& binary,
                                                                   std::vector<std::string> flags) {
  const std::string log_path = absl::StrCat(logs_.path(), "/", processes_.size(), ".log");
  flags.insert(flags.begin(), absl::StrCat(FORETOKEN_BINARY_DIR, "/", binary));
  flags.insert(flags.end(), {"--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--log_level=info"});
  const std::optional<int> port = processes_.emplace_back(flags, log_path).WaitForPort();
  FT_ASSIGN_OR_RETURN(const std::string log, base::ReadFile(log_path));
  const std::optional<int> metrics_port = MetricsPortIn(log);
  if (!port || !metrics_port) return absl::UnavailableError(absl::StrCat(binary, " did not start:\n", log));
  return Address{.service = absl::StrCat("127.0.0.1:", *port), .metrics_port = *metrics_port};
}

absl::StatusOr<std::string> ServiceProcesses::LaunchProposer(const Proposer& proposer) {
  std::vector<std::string> flags = {absl::StrCat("--method=", proposer.method)};
  for (const std::string& option : proposer.options) flags.push_back(absl::StrCat("--", option));
  FT_ASSIGN_OR_RETURN(const Address address, Launch("foretoken_proposer", std::move(flags)));
  proposer_metrics_ports_[proposer.method] = address.metrics_port;
  return absl::StrCat(proposer.method, "=static:", address.service);
}

absl::StatusOr<std::unique_ptr<ServiceProcesses>> ServiceProcesses::Start(const ServiceOptions& options) {
  auto service = std::make_unique<ServiceProcesses>();
  std::vector<std::string> specs;
  for (const Proposer& proposer : options.proposers) {
    if (options.placement == Placement::kEmbedded) {
      std::vector<std::string> parts = {proposer.method, "embedded"};
      parts.insert(parts.end(), proposer.options.begin(), proposer.options.end());
      specs.push_back(absl::StrJoin(parts, ","));
    } else {
      FT_ASSIGN_OR_RETURN(specs.emplace_back(), service->LaunchProposer(proposer));
    }
  }
  std::vector<std::string> flags = options.verifier_flags;
  flags.push_back(absl::StrCat("--model=", options.model_directory));
  flags.push_back(absl::StrCat("--proposer=", absl::StrJoin(specs, ";")));
  FT_ASSIGN_OR_RETURN(const Address address, service->Launch("foretoken_verifier", std::move(flags)));
  service->verifier_metrics_port_ = address.metrics_port;
  FT_ASSIGN_OR_RETURN(client::GenerationClient client, client::GenerationClient::Connect({.target = address.service}));
  service->client_ = std::make_unique<client::GenerationClient>(std::move(client));
  FT_RETURN_IF_ERROR(service->WaitUntilConnected());
  return service;
}

absl::Status ServiceProcesses::WaitUntilConnected() {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; absl::SleepFor(absl::Milliseconds(20))) {
    FT_ASSIGN_OR_RETURN(const foretoken::v1::GetModelInfoResponse info, client_->GetModelInfo());
    const bool all = std::ranges::all_of(info.proposers(), [](const auto& it) { return it.num_connected() > 0; });
    if (all) return absl::OkStatus();
  }
  return absl::UnavailableError("a proposer was not connected within a minute");
}

}  // namespace foretoken::bench
