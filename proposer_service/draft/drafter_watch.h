// SPDX-License-Identifier: Apache-2.0
// Watches whether a drafter that reads hidden states guesses as a head that fits its target does. A head that reads
// other layers than it was trained on raises no error: it only guesses badly. So does a head of another target of the
// same sizes. Layers that lie next to the right ones may be so alike that the watch sees nothing: in the demo, a head
// that reads each layer one too late still makes nine tenths of its right guesses. A trial (drafter_trial.h) sees it.
//
//   DrafterWatch watch(layers);
//   if (std::optional<std::string> complaint = watch.Observe(num_trials, num_hits)) spdlog::error("{}", *complaint);
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace foretoken::proposer {

// Of the tokens that a drafter guesses for its own target. Less makes fewer than 1.2 tokens per step.
inline constexpr double kMinHitRate = 0.2;

class DrafterWatch {
 public:
  // `layers`: the k of the hidden states that it reads; empty: the last one after the final norm.
  explicit DrafterWatch(std::vector<int32_t> layers) : layers_(std::move(layers)) {}

  // `num_trials`: the tokens so far that the drafter could have guessed from features of its target; `num_hits`: those
  // that were among its four best guesses. Returns a line for the log, once, if after 200 trials fewer than one in five
  // was right: 1.2 tokens per step. It names the layers, and other readings of the same file.
  std::optional<std::string> Observe(uint64_t num_trials, uint64_t num_hits);

 private:
  std::vector<int32_t> layers_;
  bool has_judged_ = false;
};

}  // namespace foretoken::proposer
