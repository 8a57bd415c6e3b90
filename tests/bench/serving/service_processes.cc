// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/service_processes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace foretoken::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// The value of the verifier's flag --proposer.
std::string EmbeddedSpec(const Proposer& proposer) {
  std::vector<std::string> parts = {proposer.method, "embedded"};
  parts.insert(parts.end(), proposer.options.begin(), proposer.options.end());
  return absl::StrJoin(parts, ",");
}

std::vector<std::string> Flags(const Proposer& proposer) {
  std::vector<std::string> flags = {absl::StrCat("--method=", proposer.method)};
  for (const std::string& option : proposer.options) flags.push_back(absl::StrCat("--", option));
  return flags;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceProcesses>> ServiceProcesses::Start(const ServiceOptions& options) {
  auto service = std::make_unique<ServiceProcesses>();
  std::vector<std::string> specs;
  for (const Proposer& proposer : options.proposers) {
    if (options.placement == Placement::kEmbedded) {
      specs.push_back(EmbeddedSpec(proposer));
      continue;
    }
    const auto [process, is_new] =
        service->proposers_.try_emplace(proposer.method, "foretoken_proposer", Flags(proposer));
    specs.push_back(absl::StrCat(proposer.method, "=static:", process->second.address()));
  }
  std::vector<std::string> flags = options.verifier_flags;
  flags.push_back(absl::StrCat("--model=", options.model_directory));
  flags.push_back(absl::StrCat("--proposer=", absl::StrJoin(specs, ";")));
  service->verifier_ =
      std::make_unique<testing::ServiceProcess>("foretoken_verifier", std::move(flags), options.verifier_environment);
  FT_ASSIGN_OR_RETURN(client::GenerationClient client,
                      client::GenerationClient::Connect({.target = service->verifier_->address()}));
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
