// SPDX-License-Identifier: Apache-2.0
// Whether speculation changes a token of a model on this machine, in its numeric mode: the promise that the product
// makes, checked by whoever runs it.
//
//   FT_ASSIGN_OR_RETURN(const std::vector<WidthResult> results, RunSelfTest(model, {.prompts = prompts}, report));
//
// Every prompt is first continued alone and without speculation. Then, once for each width, as many are continued
// together as a step has room for: it verifies so many rows of each sequence, right and wrong guesses mixed. Greedy
// decoding comes first, and then drawing at temperature 1, where equal tokens take equal logits in far more places.
// Errors: as the engine's. A difference is not an error here: it is in the results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/runnable_model.h"

namespace foretoken::client {

struct SelfTestOptions {
  std::vector<std::string> prompts;
  int32_t num_tokens = 64;  // for each prompt
  int32_t max_width = 32;   // widths are 1 to this
};

struct Difference {
  size_t prompt = 0;                               // index
  size_t position = 0;                             // of the output; both texts are equal before it
  std::optional<int32_t> plain_id, speculated_id;  // unset: the text has ended
};

// Unset: the texts are equal. `prompt` is only passed on.
std::optional<Difference> FirstDifference(size_t prompt, const std::vector<int32_t>& plain,
                                          const std::vector<int32_t>& speculated);

struct WidthResult {
  float temperature = 0;
  int32_t width = 0;  // rows of a sequence in a step, its last token included
  int64_t num_tokens = 0;
  int64_t num_steps = 0;     // of all sequences
  int64_t num_verified = 0;  // guesses
  int32_t rows_reached = 0;  // some step verified so many of every sequence; texts may be too short for `width`
  std::vector<Difference> differences;  // the first of each prompt
};

// `report` is called after each width.
absl::StatusOr<std::vector<WidthResult>> RunSelfTest(model::RunnableModel& model, const SelfTestOptions& options,
                                                     const std::function<void(const WidthResult&)>& report);

}  // namespace foretoken::client
