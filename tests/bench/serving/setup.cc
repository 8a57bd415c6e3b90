// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/setup.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/prompt_lines.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/serving/costly_target.h"
#include "tests/bench/serving/mixed_prompts.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {

using foretoken::v1::GenerateRequest;
using foretoken::v1::SpeculationOptions;

absl::StatusOr<std::unique_ptr<Setup>> Setup::Make(const SetupOptions& options) {
  auto setup = std::unique_ptr<Setup>(new Setup(options));
  FT_ASSIGN_OR_RETURN(const std::string lines, base::ReadFile(testing::SourcePath("deploy/demo/prompts.jsonl")));
  FT_ASSIGN_OR_RETURN(setup->prompts_, client::ParsePromptLines(lines));
  if (setup->prompts_.size() > static_cast<size_t>(options.max_prompts)) setup->prompts_.resize(options.max_prompts);
  const std::vector<kernels::cpu::Isa> isas = kernels::cpu::SupportedIsas();
  setup->has_amx_ = std::ranges::find(isas, kernels::cpu::Isa::kAmx) != isas.end();
  return setup;
}

absl::StatusOr<std::string> Setup::CostlyDirectory() {
  if (costly_directory_ == nullptr) {
    auto directory = std::make_unique<testing::TempDir>();
    FT_RETURN_IF_ERROR(WriteCostlyTarget({.source = testing::SourcePath("deploy/demo/target"),
                                          .directory = directory->path(),
                                          .num_bytes = options_.num_target_bytes,
                                          .num_experts = options_.num_experts}));
    costly_directory_ = std::move(directory);
  }
  return costly_directory_->path();
}

std::vector<std::string> Setup::VerifierFlags() const {
  std::vector<std::string> flags = {absl::StrCat("--threads=", options_.verifier_threads), "--kv_cache_mb=256"};
  flags.insert(flags.end(), options_.quantization.begin(), options_.quantization.end());
  return flags;
}

std::vector<Proposer> Setup::Proposers() const {
  return {{.method = "ngram"},
          {.method = "suffix"},
          {.method = "draft",
           .options = {absl::StrCat("model=", testing::SourcePath("deploy/demo/draft")),
                       absl::StrCat("threads=", options_.draft_threads), "kv_cache_mb=64"}}};
}

Proposer Setup::Eagle3() const {
  return {.method = "eagle3",
          .options = {absl::StrCat("model=", testing::SourcePath("deploy/demo/eagle3")),
                      absl::StrCat("target=", testing::SourcePath("deploy/demo/target")),
                      absl::StrCat("threads=", options_.draft_threads), "kv_cache_mb=64"}};
}

absl::StatusOr<ServiceProcesses*> Setup::Costly() {
  if (costly_ == nullptr) {
    FT_ASSIGN_OR_RETURN(const std::string directory, CostlyDirectory());
    FT_ASSIGN_OR_RETURN(
        costly_, ServiceProcesses::Start(
                     {.model_directory = directory, .verifier_flags = VerifierFlags(), .proposers = Proposers()}));
  }
  return costly_.get();
}

absl::StatusOr<std::vector<std::string>> Setup::EditedFiles(size_t count) const {
  constexpr int kBodyTokens = 250;
  // The costly target has the same outputs and longer steps.
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<ServiceProcesses> service,
                      ServiceProcesses::Start({.model_directory = testing::SourcePath("deploy/demo/target")}));
  const std::vector<std::string> heads(prompts_.begin(), prompts_.begin() + count);
  std::vector<std::string> files;
  for (const GenerateRequest& request : MakeRequests(heads, /*temperature=*/0, kBodyTokens)) {
    FT_ASSIGN_OR_RETURN(const client::Generation generation, service->client().Generate(request));
    files.push_back(EditedFilePrompt(request.text(), generation.samples.front().text));
  }
  return files;
}

std::vector<GenerateRequest> MakeRequests(const std::vector<std::string>& prompts, double temperature, int max_tokens) {
  std::vector<GenerateRequest> requests;
  for (const std::string& prompt : prompts) {
    GenerateRequest& request = requests.emplace_back();
    request.set_text(prompt);
    request.mutable_sampling()->set_temperature(static_cast<float>(temperature));
    request.mutable_sampling()->set_seed(1000 + requests.size());
    request.mutable_stopping()->set_max_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
  }
  return requests;
}

SpeculationOptions SpeculationOff() {
  SpeculationOptions options;
  options.set_mode(foretoken::v1::SPECULATION_MODE_OFF);
  return options;
}

SpeculationOptions SpeculationBy(const std::vector<std::string>& methods) {
  SpeculationOptions options;
  options.set_mode(foretoken::v1::SPECULATION_MODE_AUTO);
  options.mutable_proposers()->Assign(methods.begin(), methods.end());
  return options;
}

Finding MedianFinding(absl::string_view what, const client::MedianWithInterval& median, absl::string_view unit) {
  return {.what = std::string(what),
          .value = median.median,
          .unit = std::string(unit),
          .interval = Interval{.low = median.low, .high = median.high}};
}

}  // namespace foretoken::bench
