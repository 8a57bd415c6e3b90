// SPDX-License-Identifier: Apache-2.0
// The common setup of all parts of serving_bench: the amount of work, the models, and the services.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/median_interval.h"
#include "foretoken/v1/generation.pb.h"
#include "tests/bench/findings.h"
#include "tests/bench/serving/service_processes.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::bench {

struct SetupOptions {
  bool is_short = false;
  int64_t num_target_bytes = 1'000'000'000;  // of the costly target
  int verifier_threads = 2;
  int draft_threads = 1;
  int max_prompts = 32;
  int max_tokens = 64;                         // of each output
  int num_experts = 0;                         // of a layer of the costly target
  std::vector<std::string> quantization = {};  // flags of the verifiers
};

class Setup {
 public:
  static absl::StatusOr<std::unique_ptr<Setup>> Make(const SetupOptions& options);

  const SetupOptions& options() const { return options_; }
  const std::vector<std::string>& prompts() const { return prompts_; }
  // Whether a step's cost hardly grows with its rows on this machine, as on machines with matrix units.
  bool has_amx() const { return has_amx_; }

  // The costly target with an n-gram, a suffix and a draft-model proposer, each a process. The first call starts them.
  absl::StatusOr<ServiceProcesses*> Costly();
  absl::StatusOr<std::string> CostlyDirectory();
  // Prompts of `count` files of about 300 tokens, each with the beginning of an edited copy; see mixed_prompts.h.
  absl::StatusOr<std::vector<std::string>> EditedFiles(size_t count) const;
  std::vector<std::string> VerifierFlags() const;
  std::vector<Proposer> Proposers() const;
  // The demo target's EAGLE-3 head.
  Proposer Eagle3() const;

 private:
  explicit Setup(const SetupOptions& options) : options_(options) {}

  const SetupOptions options_;
  std::vector<std::string> prompts_;
  bool has_amx_ = false;
  std::unique_ptr<testing::TempDir> costly_directory_;
  std::unique_ptr<ServiceProcesses> costly_;
};

// One request per prompt, with fixed seeds. A request does not end before `max_tokens`.
std::vector<foretoken::v1::GenerateRequest> MakeRequests(const std::vector<std::string>& prompts, double temperature,
                                                         int max_tokens);

foretoken::v1::SpeculationOptions SpeculationOff();
// AUTO with these proposers.
foretoken::v1::SpeculationOptions SpeculationBy(const std::vector<std::string>& methods);

// Makes a finding of a median over rounds, with its interval.
Finding MedianFinding(absl::string_view what, const client::MedianWithInterval& median, absl::string_view unit);

}  // namespace foretoken::bench
