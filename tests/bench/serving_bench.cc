// SPDX-License-Identifier: Apache-2.0
// Measures the gain of speculation over the whole real path: verifier and proposers as processes, clients over gRPC.
//
//   serving_bench [--short] [--json] [--strict] [--only=PART,...] [--gigabytes=N] [--verifier_threads=N]
//                 [--draft_threads=N] [--prompts=N] [--tokens=N] [--experts=N] [--weights=FORM] [--int8_rows]
//
// The target is the demo's, widened without a change of its outputs until a step reads a gigabyte (--short: 0.15). So
// both the acceptance and the cost of a step are real. The settings take turns request by request. Figures are medians
// of the rounds' ratios, and [low, high] their 95 % intervals. Token ids must be equal with all settings. If a token
// differs or a request fails, the bench ends with exit code 1, and with --strict also if a bound does not hold.
//
// Parts: theory, load, merging, split, recovery, editing, uncostly, settling, tracing, overload, fairness, drafters;
// parts.h describes them.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "tests/bench/findings.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/setup.h"

ABSL_FLAG(bool, short, false, "a smaller target and fewer requests");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(bool, strict, false, "fail if a bound does not hold, beyond the noise");
ABSL_FLAG(std::vector<std::string>, only, {}, "parts to run, separated by commas; empty: all");
ABSL_FLAG(std::optional<double>, gigabytes, std::nullopt, "what a step of the costly target reads");
ABSL_FLAG(
    std::string, weights, "bf16",
    "bf16, int8 or int4: how verifiers keep their layers' weights; the costly target has more of them then, so that "
    "a step reads as many bytes");
ABSL_FLAG(int, experts, 0, "experts in each layer of the costly target, of which a token takes 8; 0: none");
ABSL_FLAG(bool, int8_rows, false, "int8 activations, for weights of int8 and int4");
ABSL_FLAG(int, verifier_threads, 2, "threads of the verifier");
ABSL_FLAG(int, draft_threads, 1, "threads of the draft-model proposer");
ABSL_FLAG(std::optional<int>, prompts, std::nullopt, "how many of the demo's prompts, at most 32");
ABSL_FLAG(std::optional<int>, tokens, std::nullopt, "tokens of each output");

namespace foretoken::bench {
namespace {

struct Part {
  const char* name;
  absl::Status (*measure)(Setup& setup, Findings* findings);
};
constexpr Part kParts[] = {{"theory", MeasureTheory},     {"load", MeasureLoad},         {"merging", MeasureMerging},
                           {"split", MeasureSplit},       {"recovery", MeasureRecovery}, {"editing", MeasureEditing},
                           {"uncostly", MeasureUncostly}, {"settling", MeasureSettling}, {"tracing", MeasureTracing},
                           {"overload", MeasureOverload}, {"fairness", MeasureFairness}, {"drafters", MeasureDrafters}};

SetupOptions OptionsFromFlags() {
  const bool is_short = absl::GetFlag(FLAGS_short);
  const std::string weights = absl::GetFlag(FLAGS_weights);
  std::vector<std::string> quantization;
  if (weights != "bf16") quantization.push_back("--weight_quantization=" + weights);
  if (absl::GetFlag(FLAGS_int8_rows)) quantization.push_back("--activation_quantization=int8");
  const double bits = weights == "int4" ? 4.5 : weights == "int8" ? 8.5 : 16;  // of a weight, with its part of a scale
  const double gigabytes = absl::GetFlag(FLAGS_gigabytes).value_or(is_short ? 0.15 : 1);
  return {.is_short = is_short,
          .num_target_bytes = static_cast<int64_t>(1e9 * gigabytes * 16 / bits),  // of the checkpoint, in bf16
          .verifier_threads = absl::GetFlag(FLAGS_verifier_threads),
          .draft_threads = absl::GetFlag(FLAGS_draft_threads),
          .max_prompts = std::clamp(absl::GetFlag(FLAGS_prompts).value_or(is_short ? 6 : 32), 2, 32),
          .max_tokens = absl::GetFlag(FLAGS_tokens).value_or(is_short ? 48 : 64),
          .num_experts = absl::GetFlag(FLAGS_experts),
          .quantization = std::move(quantization)};
}

absl::Status Run(Findings* findings) {
  const std::vector<std::string> only = absl::GetFlag(FLAGS_only);
  for (const std::string& name : only) {
    if (std::ranges::none_of(kParts, [&](const Part& part) { return name == part.name; })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--only: expected parts of {",
          absl::StrJoin(kParts, ", ", [](auto* out, const Part& part) { out->append(part.name); }), "}, got ", name));
    }
  }
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<Setup> setup, Setup::Make(OptionsFromFlags()));
  for (const Part& part : kParts) {
    if (!only.empty() && std::ranges::find(only, part.name) == only.end()) continue;
    std::fprintf(stderr, "%s ...\n", part.name);
    FT_RETURN_IF_ERROR(part.measure(*setup, findings));
  }
  return absl::OkStatus();
}

int Main() {
  Findings findings;
  if (!absl::GetFlag(FLAGS_json)) findings.PrintAsFound();
  if (const absl::Status status = Run(&findings); !status.ok()) {
    std::fprintf(stderr, "serving_bench: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  findings.Print(absl::GetFlag(FLAGS_json));
  if (findings.num_open() > 0) {
    std::fprintf(stderr, "serving_bench: this machine was too noisy to tell whether %d bounds hold\n",
                 findings.num_open());
  }
  if (!absl::GetFlag(FLAGS_strict) || findings.num_missed() == 0) return 0;
  std::fprintf(stderr, "serving_bench: %d bounds do not hold\n", findings.num_missed());
  return 1;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
