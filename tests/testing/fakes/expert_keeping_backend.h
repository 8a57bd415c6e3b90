// SPDX-License-Identifier: Apache-2.0
// A CPU that says what a GPU says about memory: it must keep all experts, and it may keep its matrices in FP8.
#pragma once

#include <memory>
#include <utility>

#include "tests/testing/fakes/forwarding_backend.h"

namespace foretoken::testing {

class ExpertKeepingBackend final : public ForwardingBackend {
 public:
  explicit ExpertKeepingBackend(std::unique_ptr<kernels::Backend> backend, kernels::Quantization weights = {})
      : ForwardingBackend(std::move(backend)), weights_(weights) {}

  bool keeps_all_experts() const override { return true; }
  kernels::Quantization weight_quantization() const override { return weights_; }

 private:
  const kernels::Quantization weights_;
};

}  // namespace foretoken::testing
