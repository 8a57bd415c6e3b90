// SPDX-License-Identifier: Apache-2.0
// A pool for tests, with scripted proposers over real loopback gRPC, and small engines of one sequence that use it.
//
//   ScriptedProposer proposer({});
//   const auto pool = MakePool({Static(proposer)});
//   ASSERT_TRUE(IsConnected(*pool));
//   Speaker speaker(*pool, 7);
//   speaker.Step();
//   EXPECT_TRUE(speaker.GetsATree());
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

inline constexpr int32_t kNumTokens = 1'000'000;
inline constexpr absl::Duration kLong = absl::Seconds(20);  // only a failing test waits this long

template <typename Predicate>
bool Eventually(Predicate predicate) {
  for (const absl::Time end = absl::Now() + kLong; absl::Now() < end; absl::SleepFor(absl::Milliseconds(2))) {
    if (predicate()) return true;
  }
  return false;
}

inline ProposerPoolOptions PoolOptions() {
  return {.num_tokens = kNumTokens,
          .vocabulary_fingerprint = "aa",
          .resolve_period = absl::Milliseconds(20),
          .backoff = {.initial = absl::Milliseconds(10), .max = absl::Milliseconds(50)},
          .jitter_seed = 1};
}

inline std::unique_ptr<ProposerPool> MakePool(const std::vector<std::string>& specs,
                                              ProposerPoolOptions options = PoolOptions()) {
  std::vector<ProposerSpec> parsed;
  for (const std::string& spec : specs) parsed.push_back(ParseProposerSpec(spec).value());
  return ProposerPool::Create(std::move(parsed), std::move(options)).value();
}

inline std::string Static(const testing::ScriptedProposer& proposer) { return "ngram=static:" + proposer.address(); }

inline bool IsConnected(const ProposerPool& pool, int num_replicas = 1) {
  return Eventually([&] { return pool.GetStatus()[0].num_connected == num_replicas; });
}

// An engine of one sequence: it commits a token and wants a tree.
class Speaker {
 public:
  Speaker(ProposerPool& pool, SequenceId id, size_t num_prompt_tokens = 3)
      : pool_(pool), id_(id), num_tokens_(num_prompt_tokens) {
    std::vector<int32_t> prompt(num_prompt_tokens);
    std::iota(prompt.begin(), prompt.end(), 0);
    pool_.Open({.sequence_id = id, .token_ids = prompt});
  }
  void Step(int32_t node_budget = 4) {
    pool_.Advance(id_, std::vector<int32_t>{static_cast<int32_t>(num_tokens_++)},
                  {.node_budget = node_budget, .proposers = ~0u});
    pool_.Flush({});
  }
  bool GetsATree() {
    return Eventually([&] {
      for (const Proposal& proposal : pool_.TakeProposals(absl::Milliseconds(50))) {
        if (proposal.sequence_id == id_ && proposal.tree.num_nodes() > 0) {
          newest_ = proposal;
          return true;
        }
      }
      return false;
    });
  }
  // Steps until trees arrive again.
  bool Regains() {
    return Eventually([&] {
      Step();
      for (const Proposal& proposal : pool_.TakeProposals(absl::Milliseconds(20))) {
        if (proposal.sequence_id == id_ && proposal.tree.position == num_tokens_) return true;
      }
      return false;
    });
  }
  uint64_t num_tokens() const { return num_tokens_; }
  const Proposal& newest() const { return newest_; }

 private:
  ProposerPool& pool_;
  SequenceId id_;
  uint64_t num_tokens_;
  Proposal newest_;
};

}  // namespace foretoken::verifier
