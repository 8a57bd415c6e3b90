// SPDX-License-Identifier: Apache-2.0
// The model that a verifier serves: weights ready to compute with, and the defaults from the model's files.
//
// Errors: the file, the expected value and the given one. Cheap checks come before the weights are read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/chat/chat_template.h"
#include "common/model/config/generation_config.h"
#include "common/model/runnable_model.h"
#include "kernels/ops.h"
#include "verifier_service/config.h"

namespace foretoken::verifier {

struct LoadedModel : model::RunnableModel {
  std::optional<chat::ChatTemplate> chat_template;
  std::string chat_template_error;           // why the checkpoint's template is not among them; "": it is, or has none
  std::vector<int32_t> end_token_ids;        // generation_config.json's, or else config.json's
  kernels::SamplingParams default_sampling;  // generation_config.json's
  std::string vocabulary_fingerprint;        // hex
  std::string numerics_fingerprint;
  double read_bytes_per_second = 0;  // read_rate.h; 0: not measured
};

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const Config& config, const model::LoadProgress& progress);

}  // namespace foretoken::verifier
