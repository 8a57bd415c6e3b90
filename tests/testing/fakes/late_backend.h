// SPDX-License-Identifier: Apache-2.0
// A backend that delivers results like a GPU: paths, scores and children appear with Synchronize and not before. A test
// can set a function that runs while "the device still computes".
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/testing/fakes/forwarding_backend.h"

namespace foretoken::testing {

class LateBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // Every AcceptTrees calls the function, and the following Synchronize calls it before the results appear.
  void set_on_launch(std::function<void()> on_launch) { on_launch_ = std::move(on_launch); }
  void set_on_wait(std::function<void()> on_wait) { on_wait_ = std::move(on_wait); }

  bool is_asynchronous() const override { return true; }
  void AcceptTrees(const kernels::AcceptTreesArgs& args) override {
    kernels::AcceptTreesArgs early = args;
    early.paths = Late(args.paths);
    backend().AcceptTrees(early);
    if (on_launch_) on_launch_();
  }
  void ScoreTokens(const kernels::ScoreTokensArgs& args) override {
    kernels::ScoreTokensArgs early = args;
    early.scores = Late(args.scores);
    backend().ScoreTokens(early);
  }
  void BranchRows(const kernels::BranchRowsArgs& args) override {
    kernels::BranchRowsArgs early = args;
    early.children = Late(args.children);
    backend().BranchRows(early);
  }
  void Synchronize() override {
    backend().Synchronize();
    if (on_wait_ && !due_.empty()) on_wait_();
    for (const std::function<void()>& deliver : std::exchange(due_, {})) deliver();
  }

 private:
  // Returns a buffer for results. The next Synchronize copies them to `to`.
  template <typename T>
  std::span<T> Late(std::span<T> to) {
    const auto results = std::make_shared<std::vector<T>>(to.size());
    due_.push_back([results, to] { std::ranges::move(*results, to.begin()); });
    return *results;
  }

  std::function<void()> on_launch_;
  std::function<void()> on_wait_;
  std::vector<std::function<void()>> due_;
};

}  // namespace foretoken::testing
