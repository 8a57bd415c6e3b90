// SPDX-License-Identifier: Apache-2.0
// Sequences without an engine, for tests of one stage of a step.
//
//   LoneSequences sequences;
//   std::unique_ptr<Sequence> sequence = sequences.Make({.prompt = {1, 2, 3}, .stop = {.max_tokens = 8}});
#pragma once

#include <memory>
#include <utility>

#include "kernels/check.h"
#include "kernels/make_backend.h"
#include "tests/testing/paths.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/request/active_request.h"

namespace foretoken::verifier {

class LoneSequences {
 public:
  std::shared_ptr<ActiveRequest> MakeRequest(GenerationRequest request) {
    std::shared_ptr<ActiveRequest> active = PrepareRequest(std::move(request), {.drawable = &drawable_});
    active->place = queue_.Reserve().value();
    FT_CHECK(
        active->place
            .Fill({.tenant = active->request->tenant, .num_samples = active->request->num_samples, .num_tokens = 1})
            .ok());
    return active;
  }
  std::unique_ptr<Sequence> Make(const std::shared_ptr<ActiveRequest>& active) {
    std::unique_ptr<Sequence> sequence = MakeSequence(next_id_++, active, {}, tokenizer_, drawable_);
    active->sequences.push_back(sequence.get());
    return sequence;
  }
  std::unique_ptr<Sequence> Make(GenerationRequest request) { return Make(MakeRequest(std::move(request))); }
  const QueueSpace& queue() const { return queue_; }

 private:
  QueueSpace queue_{{.num_requests = 10'000, .num_samples = 10'000, .num_tokens = 10'000}};
  const tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  const std::unique_ptr<kernels::Backend> backend_ = kernels::MakeBackend({.num_threads = 1}).backend;
  const DrawableIds drawable_{tokenizer_.vocabulary(), static_cast<int64_t>(tokenizer_.vocabulary().num_ids()),
                              *backend_};
  SequenceId next_id_ = 1;
};

}  // namespace foretoken::verifier
