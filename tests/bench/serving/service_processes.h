// SPDX-License-Identifier: Apache-2.0
// A verifier and its proposers as they are run in earnest: processes that talk gRPC over loopback.
//
//   FT_ASSIGN_OR_RETURN(auto service, ServiceProcesses::Start({.model_directory = dir, .proposers = {{"ngram"}}}));
//   service->client().Generate(request);
//   FT_ASSIGN_OR_RETURN(MetricsPage page, service->VerifierMetrics());
//
// Errors: UNAVAILABLE with a process's own words when it does not start. The processes end with the object. Threads:
// any, once started.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/generation_client.h"
#include "tests/bench/serving/metrics_page.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::bench {

struct Proposer {
  std::string method;
  std::vector<std::string> options = {};  // KEY=VALUE
};

enum class Placement { kProcesses, kEmbedded };

struct ServiceOptions {
  std::string model_directory;
  std::vector<std::string> verifier_flags;
  std::vector<Proposer> proposers;
  Placement placement = Placement::kProcesses;  // embedded: inside the verifier
};

class ServiceProcesses {
 public:
  // Returns when every proposer is connected.
  static absl::StatusOr<std::unique_ptr<ServiceProcesses>> Start(const ServiceOptions& options);

  client::GenerationClient& client() { return *client_; }
  absl::StatusOr<MetricsPage> VerifierMetrics() const { return ReadMetrics(verifier_metrics_port_); }
  absl::StatusOr<MetricsPage> ProposerMetrics(const std::string& method) const {
    return ReadMetrics(proposer_metrics_ports_.at(method));
  }

 private:
  struct Address {
    std::string service;
    int metrics_port = 0;
  };
  absl::StatusOr<Address> Launch(const std::string& binary, std::vector<std::string> flags);
  absl::StatusOr<std::string> LaunchProposer(const Proposer& proposer);  // as the verifier's --proposer names it
  absl::Status WaitUntilConnected();

  testing::TempDir logs_;
  std::list<testing::ChildProcess> processes_;
  int verifier_metrics_port_ = 0;
  std::map<std::string, int> proposer_metrics_ports_;  // by method
  std::unique_ptr<client::GenerationClient> client_;
};

}  // namespace foretoken::bench
