// SPDX-License-Identifier: Apache-2.0
// The demo draft model, ready to run, with a K/V cache of a chosen size. Or another model with the demo's tokenizer.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/runnable_model.h"
#include "gtest/gtest.h"
#include "proposer_service/draft/draft_proposer.h"
#include "tests/testing/models/test_device.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {

struct DraftModelOptions {
  int32_t num_blocks = 256;
  int32_t max_rows = 512;
  int num_threads = 2;
  std::string device = TestDevice();
  std::string other_model;  // a directory whose model is taken instead; its tokens are among the demo's
};

inline model::RunnableModel LoadDraftModel(const DraftModelOptions& options = {}) {
  model::OpenedModel opened =
      model::OpenModel({.directory = SourcePath("deploy/demo/draft"),
                        .backend = {.device = options.device, .num_threads = options.num_threads}})
          .value();
  if (!options.other_model.empty()) {
    opened.config = model::LoadModelConfig(options.other_model).value();
    opened.weights = std::make_unique<const quantization::OpenedWeights>(
        std::make_shared<const weights::Checkpoint>(weights::Checkpoint::Open(options.other_model).value()));
  }
  const model::ContextPlan context = {.max_context_tokens = 1024, .num_blocks = options.num_blocks};
  return model::LoadModel(std::move(opened), {.max_rows = options.max_rows, .context = context}, nullptr).value();
}

// A draft proposer without a thread. When it is asked for a tree, it first grows the tree completely.
class DrivenDraft : public proposer::Proposer {
 public:
  explicit DrivenDraft(const proposer::DraftForestOptions& options = {})
      : draft_(LoadDraftModel(), options, metrics_) {}
  DrivenDraft(proposer::Drafter drafter, const proposer::DraftForestOptions& options)
      : draft_(std::move(drafter), options, metrics_) {}

  const proposer::DraftForest& forest() const { return draft_.forest(); }
  const proposer::ProposerDescription& Describe() const override { return draft_.Describe(); }
  std::unique_ptr<proposer::Session> Open(const proposer::SessionIntroduction& introduction) override {
    return draft_.Open(introduction);
  }
  std::vector<speculation::TokenTree> Propose(std::span<const proposer::ProposalRequest> requests) override {
    while (draft_.Step()) continue;
    draft_.forest().CheckIntegrity();
    return draft_.Propose(requests);
  }

 private:
  telemetry::Metrics metrics_;
  proposer::DraftProposer draft_;
};

}  // namespace foretoken::testing
