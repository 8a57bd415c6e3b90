// SPDX-License-Identifier: Apache-2.0
// A backend whose acceptance rule comes from the test, for rules that are wrong on purpose. A rule that reads or
// changes paths synchronises the backend first, because a GPU has not written them yet.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/testing/fakes/forwarding_backend.h"

namespace foretoken::testing {

using AcceptRule = std::function<void(kernels::Backend& real, const kernels::AcceptTreesArgs& args)>;

class OtherDrawBackend final : public ForwardingBackend {
 public:
  OtherDrawBackend(std::unique_ptr<kernels::Backend> real, AcceptRule rule)
      : ForwardingBackend(std::move(real)), rule_(std::move(rule)) {}

  void AcceptTrees(const kernels::AcceptTreesArgs& args) override { rule_(backend(), args); }

 private:
  AcceptRule rule_;
};

}  // namespace foretoken::testing
