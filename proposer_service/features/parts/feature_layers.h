// SPDX-License-Identifier: Apache-2.0
// Which hidden states of the target a drafter reads. S_k is the residual stream that enters layer k.
//
// The same key has two meanings in published files, by the place where it stands. At the top of config.json an id k
// means S_k. Inside `eagle_config` it means the output of layer k, which is S_(k+1), and so do all keys whose names are
// target_layer_ids. Without ids EAGLE-3 reads S_2, S_(L/2) and S_(L-3), where L is the number of the target's layers; a
// DFlash drafter of D layers reads D outputs at even distances. A wrong reading never fails: it only makes worse
// guesses. So the caller may give the layers, and the loader logs what it resolved.
//
// Source: the readers of vLLM and SGLang, and ModelOpt's exporter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fields.h"

namespace foretoken::proposer {

struct FeatureLayers {
  std::vector<int32_t> layers;  // the k of each S_k
  std::string source;           // what decided, for the log: a key of the file, the option, or "the default"
};

// The k of each S_k that a file without ids means.
std::vector<int64_t> DefaultEagle3Layers(int64_t num_target_layers);
std::vector<int64_t> DefaultDflashLayers(int64_t num_target_layers, int64_t num_layers);

// `given` is the option feature_layers, a list of k with commas, or with + where a comma ends the option, as for an
// embedded proposer; empty: the file decides, or else the defaults.
// INVALID_ARGUMENT names the key or the option: an id outside 0 to L.
absl::StatusOr<FeatureLayers> ResolveFeatureLayers(const model::JsonFields& config, absl::string_view given,
                                                   int64_t num_target_layers, std::vector<int64_t> defaults);

// "S_2, S_4, S_5, by the default"
std::string Describe(const FeatureLayers& layers);

}  // namespace foretoken::proposer
