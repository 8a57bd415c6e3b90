// SPDX-License-Identifier: Apache-2.0
// Measures the suffix proposer on a memory of 10 million tokens of code: an appended token, a 16-node proposal from a
// 64-token context, a learned token, and the memory.
//
//   suffix_bench
//   suffix_bench --short        a tenth of the tokens
//
// Appends and proposals are those of sessions on code that is new to the memory. Each session opens with 64 tokens and
// continues with 32, as in serving: append, propose, append, propose. Before a "cold" call, other work has used the
// caches.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "proposer_service/suffix/suffix.h"
#include "tests/bench/code_corpus.h"
#include "tests/bench/findings.h"
#include "tests/bench/stopwatch.h"

ABSL_FLAG(int64_t, tokens, 10'000'000, "tokens of finished outputs in the memory");
ABSL_FLAG(bool, short, false, "a tenth of the tokens");
ABSL_FLAG(bool, json, false, "print JSON instead of a table");

namespace foretoken::bench {
namespace {

using proposer::Session;
using proposer::SuffixProposer;

constexpr int32_t kContextTokens = 64;
constexpr int32_t kTokensPerSession = 32;
constexpr int32_t kNodeBudget = 16;
constexpr double kMaxMedianUs = 5;
constexpr double kMaxP99Us = 40;
constexpr double kMaxBytesPerToken = 60;

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t num_pages = 0;
  int64_t num_resident = 0;
  statm >> num_pages >> num_resident;
  return static_cast<double>(num_resident) * static_cast<double>(getpagesize());
}

template <typename Work>
double Microseconds(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Each output in turn becomes a finished output.
void Learn(SuffixProposer& proposer, std::span<const std::vector<int32_t>> outputs) {
  for (const std::vector<int32_t>& output : outputs) {
    const std::unique_ptr<Session> session = proposer.Open({});
    session->Want({});
    session->Append(output);
  }
  proposer.WaitUntilLearned();
}

// Uses the caches as a forward pass would.
void SpoilCaches() {
  static std::vector<uint64_t> bytes(size_t{64} << 17);
  for (uint64_t& word : bytes) ++word;
}

struct Times {
  std::vector<double> append_us;
  std::vector<double> propose_us;
  int64_t num_nodes = 0;
};

struct Load {
  int32_t num_sessions;
  bool cold = false;
};

Times Serve(SuffixProposer& proposer, std::span<const std::vector<int32_t>> files, const Load& load) {
  std::mt19937 random(2);
  Times times;
  for (int32_t i = 0; i < load.num_sessions; ++i) {
    const std::vector<int32_t>& file = files[random() % files.size()];
    if (file.size() < kContextTokens + kTokensPerSession) continue;
    const std::span<const int32_t> text =
        std::span(file).subspan(random() % (file.size() - kContextTokens - kTokensPerSession + 1));
    const std::unique_ptr<Session> session = proposer.Open({.tenant = ""});
    session->Append(text.first(kContextTokens));
    const proposer::ProposalRequest request = {session.get(), kNodeBudget};
    for (int32_t t = 0; t < (load.cold ? 1 : kTokensPerSession); ++t) {
      if (load.cold) SpoilCaches();
      times.append_us.push_back(Microseconds([&] { session->Append(text.subspan(kContextTokens + t, 1)); }));
      if (load.cold) SpoilCaches();
      std::vector<speculation::TokenTree> trees;
      times.propose_us.push_back(Microseconds([&] { trees = proposer.Propose({&request, 1}); }));
      times.num_nodes += trees[0].num_nodes();
    }
  }
  return times;
}

void Report(Findings& findings, const std::string& what, const std::vector<double>& us, bool bounded) {
  const auto bound = [&](double value) { return bounded ? std::optional(value) : std::nullopt; };
  findings.Add({.what = what + ", median", .value = Quantile(us, 0.5), .unit = "us", .at_most = bound(kMaxMedianUs)});
  findings.Add({.what = what + ", p99", .value = Quantile(us, 0.99), .unit = "us", .at_most = bound(kMaxP99Us)});
}

absl::Status Run() {
  const int64_t num_tokens = absl::GetFlag(FLAGS_tokens) / (absl::GetFlag(FLAGS_short) ? 10 : 1);
  absl::StatusOr<CodeCorpus> corpus = LoadCodeCorpus(num_tokens + num_tokens / 5);
  if (!corpus.ok()) return corpus.status();
  std::vector<std::vector<int32_t>> learned;
  std::vector<std::vector<int32_t>> unseen;
  int64_t num_learned = 0;
  for (std::vector<int32_t>& file : corpus->files) {
    if (learned.size() >= 10 * unseen.size() + 10) {
      unseen.push_back(std::move(file));
    } else if (num_learned < num_tokens) {
      num_learned += static_cast<int64_t>(file.size());
      learned.push_back(std::move(file));
    }
  }
  if (learned.empty() || unseen.empty()) return absl::InvalidArgumentError("--tokens: expected more of them");
  std::printf("%s; learned %lld in %zu files, %zu others unseen\n", corpus->description.c_str(),
              static_cast<long long>(num_learned), learned.size(), unseen.size());

  Findings findings;
  const double resident_before = ResidentBytes();
  SuffixProposer proposer({});
  const double learn_us = Microseconds([&] { Learn(proposer, learned); });
  const double resident = ResidentBytes() - resident_before;
  const auto tokens = static_cast<double>(num_learned);
  findings.Add({.what = "memory, by the tree's own count",
                .value = static_cast<double>(proposer.num_bytes()) / tokens,
                .unit = "bytes/token",
                .at_most = kMaxBytesPerToken});
  findings.Add({.what = "memory, by what became resident",
                .value = resident / tokens,
                .unit = "bytes/token",
                .at_most = kMaxBytesPerToken});
  findings.Add({.what = "an output's token, session and learning", .value = learn_us / tokens, .unit = "us"});

  Serve(proposer, unseen, {.num_sessions = 500});
  const Times warm = Serve(proposer, unseen, {.num_sessions = 2000});
  Report(findings, "append", warm.append_us, true);
  Report(findings, "proposal of 16 nodes", warm.propose_us, true);
  findings.Add({.what = "nodes of a proposal, mean",
                .value = static_cast<double>(warm.num_nodes) / static_cast<double>(warm.propose_us.size()),
                .unit = ""});
  const Times cold = Serve(proposer, unseen, {.num_sessions = 300, .cold = true});
  Report(findings, "append, cold", cold.append_us, false);
  Report(findings, "proposal of 16 nodes, cold", cold.propose_us, false);

  std::atomic<bool> is_serving = true;
  std::thread other([&] {
    for (size_t i = 0; is_serving; i = (i + 1) % learned.size()) Learn(proposer, std::span(learned).subspan(i, 1));
  });
  const Times beside = Serve(proposer, unseen, {.num_sessions = 1000});
  is_serving = false;
  other.join();
  Report(findings, "append, while another thread learns all the time", beside.append_us, false);
  Report(findings, "proposal, while another thread learns all the time", beside.propose_us, false);

  findings.Print(absl::GetFlag(FLAGS_json));
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = foretoken::bench::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "suffix_bench: %s\n", status.ToString().c_str());
  return 1;
}
