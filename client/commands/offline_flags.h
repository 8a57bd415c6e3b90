// SPDX-License-Identifier: Apache-2.0
// The flags of the commands that load a model themselves. They have the names and meanings of the verifier's.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/offline/offline_engine.h"

namespace foretoken::client {

// The model that --model names, kept and computed as the other flags say. INVALID_ARGUMENT without --model.
absl::StatusOr<OfflineModel> OfflineModelFromFlags();

// Whether a flag changes how the checkpoint is kept or what it multiplies.
bool QuantizesAtLoad();

// "models/llama, cpu/avx512_bf16 w4a8-g32", and " rope-long" where the model takes the angles for long contexts.
std::string Describe(const OfflineModel& options, const model::RunnableModel& model);

}  // namespace foretoken::client
