// SPDX-License-Identifier: Apache-2.0
// A proposer inside the engine's own thread that answers at once. It knows the continuation of each prompt. Its trees
// are chains of the next tokens with a wrong guess beside each of them. From some depth on, which follows the position,
// the chain itself is wrong.
//
// The host work of a step, which a bench measures, includes this class. So it stores no contexts, searches no texts and
// converts no trees, as InProcessProposers of the tests and their guesses do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::client {

class OracleProposer final : public verifier::ProposerClient {
 public:
  // Makes trees of `num_nodes` nodes, with fewer than `max_right` right guesses. A sequence without a known
  // continuation gets no tree.
  explicit OracleProposer(int32_t num_nodes, int32_t max_right = 5) : num_nodes_(num_nodes), max_right_(max_right) {}

  // Sets the continuation of a prompt.
  void Teach(std::vector<int32_t> prompt, std::vector<int32_t> continuation) {
    scripts_[std::move(prompt)] = std::move(continuation);
  }

  const std::vector<std::string>& Names() const override { return names_; }
  void Open(const verifier::SequenceIntroduction& introduction) override {
    const auto script = scripts_.find({introduction.token_ids.begin(), introduction.token_ids.end()});
    if (script == scripts_.end()) return;
    sessions_[introduction.sequence_id] = {.script = &script->second, .num_prompt = introduction.token_ids.size()};
    due_.push_back(introduction.sequence_id);
  }
  void Advance(verifier::SequenceId sequence_id, std::span<const int32_t> committed,
               const verifier::Ask& ask) override {
    const auto session = sessions_.find(sequence_id);
    if (session == sessions_.end()) return;
    session->second.num_emitted += committed.size();
    if (ask.node_budget > 0 && ask.proposers != 0) due_.push_back(sequence_id);
  }
  void Close(verifier::SequenceId sequence_id) override { sessions_.erase(sequence_id); }
  void Flush(const verifier::ComingStep&) override {}
  std::vector<verifier::Proposal> TakeProposals(absl::Duration) override {
    std::vector<verifier::Proposal> proposals;
    for (const verifier::SequenceId id : due_) {
      const auto session = sessions_.find(id);
      if (session != sessions_.end()) proposals.push_back({.sequence_id = id, .tree = TreeOf(session->second)});
    }
    due_.clear();
    return proposals;
  }
  std::vector<verifier::ProposerStatus> GetStatus() const override { return {{.name = names_[0], .num_connected = 1}}; }

 private:
  struct Session {
    const std::vector<int32_t>* script = nullptr;
    size_t num_prompt = 0;
    size_t num_emitted = 0;
  };

  speculation::TokenTree TreeOf(const Session& session) const {
    speculation::TokenTree tree{.position = session.num_prompt + session.num_emitted};
    const auto add = [&](int32_t token_id, int32_t parent, float chance) {
      tree.Append({.token_id = token_id, .parent = parent, .chance = chance, .proposers = 1});
    };
    const size_t num_right = tree.position % static_cast<size_t>(max_right_);
    int32_t parent = speculation::kRootParent;
    for (size_t i = 0; tree.num_nodes() < num_nodes_ && session.num_emitted + i < session.script->size(); ++i) {
      const int32_t right_id = (*session.script)[session.num_emitted + i];
      const int32_t next_parent = tree.num_nodes();
      add(i < num_right ? right_id : Other(right_id, 2), parent, 0.7f);
      if (tree.num_nodes() < num_nodes_) add(Other(right_id, 1), parent, 0.1f);
      parent = next_parent;
    }
    return tree;
  }

  // Another id, of the smallest vocabulary too.
  static int32_t Other(int32_t token_id, int32_t distance) {
    return token_id >= distance ? token_id - distance : token_id + distance;
  }

  int32_t num_nodes_;
  int32_t max_right_;
  std::vector<std::string> names_ = {"scripted"};
  std::map<std::vector<int32_t>, std::vector<int32_t>> scripts_;  // continuation by prompt
  absl::flat_hash_map<verifier::SequenceId, Session> sessions_;
  std::vector<verifier::SequenceId> due_;  // sequences with an owed answer
};

}  // namespace foretoken::client
