// SPDX-License-Identifier: Apache-2.0
// A backend that forwards to another backend, and spoils chosen rows of logits before draws. For host backends.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/testing/fakes/forwarding_backend.h"

namespace foretoken::testing {

// The rows that draw token t of the sequences with this seed. Every entry of these rows becomes `value`.
struct SpoiledRows {
  uint64_t seed = 0;
  uint32_t t = 0;
  float value = 0;
};

class SpoiledBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // Sets the rows to spoil, and resets the count.
  void Spoil(const SpoiledRows& rows) {
    spoiled_ = rows;
    num_spoiled_ = 0;
  }
  int num_spoiled() const { return num_spoiled_; }

  void AcceptTrees(const kernels::AcceptTreesArgs& args) override {
    const int64_t width = args.logits.shape[1];
    std::vector<float> logits(args.logits.as<float>(), args.logits.as<float>() + args.logits.shape[0] * width);
    for (const kernels::TreeToAccept& tree : args.trees) {
      if (!spoiled_.has_value() || tree.sampling.seed != spoiled_->seed) continue;
      std::vector<uint32_t> t(tree.parents.size(), tree.context_len);
      for (size_t node = 0; node < t.size(); ++node) {
        if (node > 0) t[node] = t[tree.parents[node]] + 1;
        if (t[node] != spoiled_->t) continue;
        std::fill_n(logits.begin() + (tree.first_logit_row + static_cast<int64_t>(node)) * width, width,
                    spoiled_->value);
        ++num_spoiled_;
      }
    }
    kernels::AcceptTreesArgs spoiled = args;
    spoiled.logits.data = logits.data();
    backend().AcceptTrees(spoiled);
  }

 private:
  std::optional<SpoiledRows> spoiled_;
  int num_spoiled_ = 0;
};

}  // namespace foretoken::testing
