// SPDX-License-Identifier: Apache-2.0
// One of the two services as a process of a test or a bench, on free ports of this machine.
//
//   ServiceProcess proposer("foretoken_proposer", {"--method=suffix"});
//   ServiceProcess verifier("foretoken_verifier", {"--proposer=suffix=static:" + proposer.address()});
//   verifier.Metrics().at("foretoken_steps_total");
//
// If the service does not start or shows no metrics, the program ends and prints the service's log.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/testing/child_process.h"
#include "tests/testing/metrics_page.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

class ServiceProcess {
 public:
  // `binary` is foretoken_proposer or foretoken_verifier of this build, or the absolute path of another build's. A
  // verifier serves the demo model unless the flags name another. `environment` has variables as NAME=VALUE. `launcher`
  // is a command that ends with exec of its arguments.
  ServiceProcess(const std::string& binary, std::vector<std::string> flags, std::vector<std::string> environment = {},
                 std::vector<std::string> launcher = {});

  const std::string& address() const { return address_; }
  ChildProcess& process() { return *process_; }
  const ChildProcess& process() const { return *process_; }
  // Kills the process if it still runs.
  void Kill();
  // Kills the process if it still runs, and starts another one at its address.
  void Restart();
  // Sends SIGTERM and returns the exit code. An idle connected client delays the end by seconds.
  int Terminate();

  std::string Log() const;
  MetricsPage Metrics() const;
  // Returns the sum of a metric over its labels. 0 if the page does not have it.
  double Metric(absl::string_view name) const { return SumOf(Metrics(), name); }

 private:
  void Start(const std::string& listen);
  [[noreturn]] void Die(absl::string_view why) const;

  const std::string binary_;
  const std::vector<std::string> flags_;
  const std::vector<std::string> environment_;
  const std::vector<std::string> launcher_;
  const TempDir directory_;
  std::unique_ptr<ChildProcess> process_;
  std::string address_;
  int metrics_port_ = 0;
};

}  // namespace foretoken::testing
