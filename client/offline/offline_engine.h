// SPDX-License-Identifier: Apache-2.0
// An engine that a command runs to the end of its requests, over a model that the command has loaded itself. No server
// and no other process takes part.
//
//   FT_ASSIGN_OR_RETURN(model::RunnableModel model, LoadOffline({.path = "models/llama"}));
//   FT_ASSIGN_OR_RETURN(const std::vector<Said> said, RunToEnd(model, proposer, std::move(requests)));
//
// Errors: as model::OpenModel, and those of the engine for a request, which end the whole run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/runnable_model.h"
#include "kernels/make_backend.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/request/request.h"

namespace foretoken::client {

inline constexpr int32_t kOfflineStepRows = 512;  // of all sequences, at most

struct OfflineModel {
  std::string path;
  kernels::BackendOptions backend;
  int32_t tensor_parallel = 1;
  std::optional<int64_t> expert_memory_mb;    // MiB of packed experts; unset: all of them
  std::optional<int32_t> max_context_tokens;  // as a verifier's; unset: what a verifier takes by default
};

// Writes to standard error what had to be decided about a checkpoint, as a server does to its log.
void PrintNotes(const std::vector<std::string>& notes);

// The model computes what it does on a verifier with the same longest context. K/V holds 32,768 tokens, which is less
// than a verifier may have, so requests end there.
absl::StatusOr<model::RunnableModel> LoadOffline(const OfflineModel& options);

// What a request with one sample has said.
struct Said {
  std::vector<int32_t> token_ids;
  std::vector<kernels::RowLogprobs> prompt_logprobs;  // from the prompt's second token on, if requested
  std::vector<verifier::StepReport> steps;            // if requested
  verifier::SampleCompletion completion;
};

// Runs the requests at the same time, as far as they fit, and returns what each said, in their order. It sets their
// tickets.
absl::StatusOr<std::vector<Said>> RunToEnd(model::RunnableModel& model, verifier::ProposerClient& proposer,
                                           std::vector<verifier::GenerationRequest> requests);

}  // namespace foretoken::client
