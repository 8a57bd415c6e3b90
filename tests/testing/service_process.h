// SPDX-License-Identifier: Apache-2.0
// One of the two services as a process of a test or a bench, on free ports of this machine.
//
//   ServiceProcess proposer("foretoken_proposer", {"--method=suffix"});
//   ServiceProcess verifier("foretoken_verifier", {"--proposer=suffix=static:" + proposer.address()});
//   verifier.Metrics().at("foretoken_steps_total");
//
// A service that does not start, or shows no metrics, ends the program with what the service logged.
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
  // `binary` is foretoken_proposer or foretoken_verifier; the latter serves the demo model unless flags say otherwise.
  ServiceProcess(const std::string& binary, std::vector<std::string> flags);

  const std::string& address() const { return address_; }
  ChildProcess& process() { return *process_; }
  // Kills the process where it still runs, and starts another at its address.
  void Restart();
  // SIGTERM, and the exit code. A client that is still connected, and idle, holds it up by seconds.
  int Terminate();

  std::string Log() const;
  MetricsPage Metrics() const;
  // The sum of a metric over its labels; 0 where it is not shown.
  double Metric(absl::string_view name) const { return SumOf(Metrics(), name); }

 private:
  void Start(const std::string& listen);
  [[noreturn]] void Die(absl::string_view why) const;

  const std::string binary_;
  const std::vector<std::string> flags_;
  const TempDir directory_;
  std::unique_ptr<ChildProcess> process_;
  std::string address_;
  int metrics_port_ = 0;
};

}  // namespace foretoken::testing
