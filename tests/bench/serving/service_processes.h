// SPDX-License-Identifier: Apache-2.0
// A verifier and its proposers as in production: processes that talk gRPC over loopback.
//
//   FT_ASSIGN_OR_RETURN(auto service, ServiceProcesses::Start({.model_directory = dir, .proposers = {{"ngram"}}}));
//   service->client().Generate(request);
//   service->verifier().Metrics();
//
// Errors: UNAVAILABLE if a proposer does not connect within a minute. A process that does not start ends the program
// and prints its log. The processes end with the object. Threads: any, once started.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/generation_client.h"
#include "tests/testing/service_process.h"

namespace foretoken::bench {

struct Proposer {
  std::string method;
  std::vector<std::string> options = {};  // KEY=VALUE
};

enum class Placement { kProcesses, kEmbedded };

struct ServiceOptions {
  std::string model_directory;
  std::vector<std::string> verifier_flags;
  std::vector<std::string> verifier_environment = {};  // NAME=VALUE
  std::vector<Proposer> proposers;
  Placement placement = Placement::kProcesses;  // embedded: inside the verifier
};

class ServiceProcesses {
 public:
  // Returns when every proposer is connected.
  static absl::StatusOr<std::unique_ptr<ServiceProcesses>> Start(const ServiceOptions& options);

  client::GenerationClient& client() { return *client_; }
  const testing::ServiceProcess& verifier() const { return *verifier_; }
  // The process of a proposer that is not embedded.
  const testing::ServiceProcess& proposer(const std::string& method) const { return proposers_.at(method); }

 private:
  absl::Status WaitUntilConnected();

  std::map<std::string, testing::ServiceProcess> proposers_;  // by method
  std::unique_ptr<testing::ServiceProcess> verifier_;
  std::unique_ptr<client::GenerationClient> client_;
};

}  // namespace foretoken::bench
