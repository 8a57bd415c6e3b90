// SPDX-License-Identifier: Apache-2.0
// The two services as processes of a test, on free ports of this machine.
//
//   ServiceProcess proposer("foretoken_proposer", {"--method=suffix"});
//   ServiceProcess verifier("foretoken_verifier", {"--proposer=suffix=static:" + proposer.address()});
//   client::GenerationClient client = Connect(verifier);
//
// A service that does not start fails the test. What it logs is kept, for the test to read; what it shows under
// /metrics, too.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/generation_client.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {

class ServiceProcess {
 public:
  // `binary` is foretoken_proposer or foretoken_verifier; the latter serves the demo model unless flags say otherwise.
  ServiceProcess(const std::string& binary, std::vector<std::string> flags);

  const std::string& address() const { return address_; }
  testing::ChildProcess& process() { return *process_; }
  // Kills the process where it still runs, and starts another at its address.
  void Restart();
  // SIGTERM, and the exit code. A client that is still connected, and idle, holds it up by seconds.
  int Terminate();

  std::string Log() const;
  // The sum of a metric over its labels; 0 where it is not shown.
  double Metric(absl::string_view name) const;

 private:
  void Start(const std::string& listen);

  const std::string binary_;
  const std::vector<std::string> flags_;
  const testing::TempDir directory_;
  std::unique_ptr<testing::ChildProcess> process_;
  std::string address_;
  int metrics_port_ = 0;
};

client::GenerationClient Connect(const ServiceProcess& verifier);

// Of the verifier's proposers, the connected replicas of all.
int NumConnected(client::GenerationClient& client);

}  // namespace foretoken
