// SPDX-License-Identifier: Apache-2.0
// A small model of serving. Proposers' trees arrive fresh, late or repeated, and production functions re-root, merge
// and cut them. Rows stay within a budget, and a production rule verifies step after step until the generation is
// complete. Tests enumerate all its outcomes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/speculation/tested_tree.h"
#include "common/speculation/token_tree.h"
#include "kernels/check.h"
#include "kernels/rejection_sampling.h"
#include "tests/testing/distributions/remembered_coins.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"
#include "verifier_service/planner/place_chances.h"

namespace foretoken::testing {

enum class SmallRule { kKeyedDraw, kRejectionSampling };

// The snapshot of a proposer's tree that a step receives.
enum class Arrival {
  kFresh,      // knows all tokens
  kLateByOne,  // does not know the last token, if there is one
  kLateByTwo,  // does not know the last two tokens, if there are two
  kDeeper,     // a shallow snapshot, and in the next step a deeper one of the same place
  kOnce,       // the rest of the first step's snapshot
  kRestarted,  // a fresh snapshot of a session that has forgotten its draws
};

struct ServedProposer {
  const SmallDistribution* distribution = nullptr;
  Drawing drawing = Drawing::kSampled;
  size_t num_children = 1;
  Arrival arrival = Arrival::kFresh;
};

struct SmallServing {
  const SmallDistribution& target;  // its longest path is the length of a generation
  std::vector<ServedProposer> proposers;
  SmallRule rule = SmallRule::kRejectionSampling;
  int32_t depth = 2;  // of a fresh tree; late trees are deeper
  // Returns the row budget of a step's tree. Unset: the budget is learned from past steps.
  std::function<int32_t(const speculation::TokenTree&)> row_budget;
};

class SmallGeneration {
 public:
  SmallGeneration(const SmallServing& serving, Branches& branches)
      : serving_(serving), branches_(branches), coins_(branches), sessions_(serving.proposers.size()) {}

  std::vector<int32_t> Run() {
    while (static_cast<int32_t>(emitted_.size()) < max_tokens()) Step();
    return emitted_;
  }

  int32_t num_reused_coins() const { return coins_.num_reused(); }

 private:
  struct Session {
    std::optional<speculation::TokenTree> guess;
    DrawnChildrenByPath drawn;
    size_t last_position = 0;
  };

  int32_t max_tokens() const { return serving_.target.paths().max_len; }

  void Step() {
    for (size_t i = 0; i < sessions_.size(); ++i) Receive(i);
    ++num_steps_;
    const speculation::TokenTree tree = MergedGuess();
    const int32_t budget = serving_.row_budget ? serving_.row_budget(tree) : LearnedBudget();
    const std::vector<int32_t> best = speculation::BestNodeIdx(tree, budget + 1);
    std::vector<int32_t> row_node_idx(best.begin(), best.begin() + std::min<size_t>(best.size(), budget));
    std::sort(row_node_idx.begin(), row_node_idx.end());
    const std::vector<int32_t> committed = serving_.rule == SmallRule::kKeyedDraw
                                               ? WalkByDraw(speculation::Keep(tree, row_node_idx))
                                               : WalkWithCoins(tree, row_node_idx);
    Learn(tree, best, budget, committed);
    for (const int32_t token_id : committed) {
      if (static_cast<int32_t>(emitted_.size()) < max_tokens()) emitted_.push_back(token_id);
    }
  }

  // Receives a snapshot, or re-roots the existing tree.
  void Receive(size_t i) {
    const ServedProposer& served = serving_.proposers[i];
    Session& session = sessions_[i];
    const size_t position = emitted_.size();
    const auto take = [&](size_t base, int32_t max_depth) {
      const SmallProposer proposer = {
          .distribution = served.distribution,
          .drawing = served.drawing,
          .wants_child = [&](const NodePlace& place) { return place.siblings.size() < served.num_children; },
          .proposer_idx = static_cast<uint32_t>(i)};
      const auto room = static_cast<int32_t>(max_tokens() - base);
      session.guess =
          SnapshotTree(proposer, std::span(emitted_).first(base), std::min(max_depth, room), session.drawn, branches_);
    };
    switch (served.arrival) {
      case Arrival::kFresh:
        take(position, serving_.depth);
        break;
      case Arrival::kLateByOne:
        take(position - std::min<size_t>(position, 1), serving_.depth + 1);
        break;
      case Arrival::kLateByTwo:
        take(position - std::min<size_t>(position, 2), serving_.depth + 1);
        break;
      case Arrival::kDeeper:
        if (num_steps_ % 2 == 0) {
          take(position, 1);
        } else {
          take(session.last_position, serving_.depth + 1);
        }
        break;
      case Arrival::kOnce:
        if (num_steps_ == 0) take(0, serving_.depth + 1);
        break;
      case Arrival::kRestarted:
        session.drawn.clear();
        take(position, serving_.depth);
        break;
    }
    session.last_position = position;
    if (session.guess->position < position) {
      session.guess = speculation::ReRoot(*session.guess, std::span(emitted_).subspan(session.guess->position));
    }
  }

  speculation::TokenTree MergedGuess() const {
    std::vector<speculation::TokenTree> trees;
    for (const Session& session : sessions_) {
      if (session.guess->num_nodes() > 0) trees.push_back(*session.guess);
    }
    if (trees.empty()) return {.position = emitted_.size()};
    return speculation::CutDepth(speculation::Merge(trees), max_tokens() - static_cast<int32_t>(emitted_.size()) - 1);
  }

  std::vector<int32_t> WalkByDraw(const speculation::TokenTree& tree) {
    std::vector<int32_t> history = emitted_, committed;
    while (speculation::MatchedPath(tree, committed).size() == committed.size()) {
      committed.push_back(branches_.Choose(serving_.target.At(history)));
      history.push_back(committed.back());
    }
    return committed;
  }

  std::vector<int32_t> WalkWithCoins(const speculation::TokenTree& guess, std::span<const int32_t> row_node_idx) {
    const verifier::TestedTree tested = verifier::MakeTestedTree(0, &guess, row_node_idx);
    const kernels::TreeToAccept tree = TreeOf(tested, row_node_idx.size(), emitted_.size());
    SmallRows rows(serving_.target, emitted_, tree);
    kernels::AcceptedPath path;
    kernels::WalkByRejection(tree, rows, coins_, path);
    return path.token_ids;
  }

  // Returns the number of places with a sufficient chance.
  int32_t LearnedBudget() const {
    const std::span<const float> chances = place_chances_.chances();
    return static_cast<int32_t>(std::count_if(chances.begin(), chances.end(), [](float c) { return c >= 0.35f; }));
  }

  void Learn(const speculation::TokenTree& tree, std::span<const int32_t> best, int32_t budget,
             std::span<const int32_t> committed) {
    std::vector<int32_t> places;
    for (const int32_t node : speculation::MatchedPath(tree, committed)) {
      const auto place = std::find(best.begin(), best.end(), node) - best.begin();
      if (place < static_cast<int64_t>(best.size())) places.push_back(static_cast<int32_t>(place));
    }
    place_chances_.Observe(budget, places);
  }

  const SmallServing& serving_;
  Branches& branches_;
  RememberedCoins coins_;
  std::vector<Session> sessions_;
  std::vector<int32_t> emitted_;
  verifier::PlaceChances place_chances_{4};
  int32_t num_steps_ = 0;
};

}  // namespace foretoken::testing
