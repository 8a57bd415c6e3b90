// SPDX-License-Identifier: Apache-2.0
#include "client/offline/offline_engine.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/context_plan.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::client {
namespace {

constexpr int32_t kMaxKvBlocks = 32768 / kernels::kKvBlockSize;

void Take(verifier::SampleOutput& output, Said& said, absl::Status& error) {
  error.Update(output.error);
  said.token_ids.insert(said.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
  if (output.prompt.has_value()) {
    auto& logprobs = output.prompt->logprobs;
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(said.prompt_logprobs));
  }
  std::ranges::move(output.steps, std::back_inserter(said.steps));
  if (output.completion.has_value()) said.completion = std::move(*output.completion);
}

}  // namespace

void PrintNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "foretoken: warning: %s\n", note.c_str());
}

absl::StatusOr<model::RunnableModel> LoadOffline(const OfflineModel& options) {
  FT_ASSIGN_OR_RETURN(model::OpenedModel opened, model::OpenModel({.directory = options.path,
                                                                   .backend = options.backend,
                                                                   .tensor_parallel = options.tensor_parallel}));
  PrintNotes(opened.notes);
  FT_ASSIGN_OR_RETURN(model::ContextPlan context,
                      model::PlanContext({.max_context_tokens = options.max_context_tokens,
                                          .kv_cache_dtype = opened.ranks->backend(0).kv_cache_dtype()},
                                         opened.config));
  // The longest context decides the angles of LongRoPE, and the blocks decide nothing.
  context.num_blocks = std::min(context.num_blocks, kMaxKvBlocks);
  return model::LoadModel(std::move(opened),
                          {.max_rows = kOfflineStepRows,
                           .context = context,
                           .max_expert_bytes = model::ExpertBytes(options.expert_memory_mb)},
                          [](size_t, size_t) {});
}

absl::StatusOr<std::vector<Said>> RunToEnd(model::RunnableModel& model, verifier::ProposerClient& proposer,
                                           std::vector<verifier::GenerationRequest> requests) {
  std::vector<Said> said(requests.size());
  absl::Status error;
  const auto num_requests = static_cast<int32_t>(requests.size());
  verifier::Engine engine({.max_queued_requests = num_requests + 1, .max_step_rows = kOfflineStepRows},
                          {.transformer = model.transformer.get(),
                           .kv = &model.kv,
                           .tokenizer = &model.tokenizer,
                           .proposers = &proposer,
                           .publish = [&](std::vector<verifier::SampleOutput> outputs) {
                             for (verifier::SampleOutput& output : outputs)
                               Take(output, said[output.ticket - 1], error);
                           }});
  for (int32_t i = 0; i < num_requests; ++i) {
    requests[i].ticket = static_cast<verifier::Ticket>(i) + 1;
    requests[i].request_id = absl::StrCat(i);
    FT_ASSIGN_OR_RETURN(verifier::QueuePlace place, engine.Reserve());
    FT_RETURN_IF_ERROR(engine.Submit(std::move(place), std::move(requests[i])));
  }
  while (error.ok() && engine.Step()) continue;
  FT_RETURN_IF_ERROR(error);
  return said;
}

}  // namespace foretoken::client
