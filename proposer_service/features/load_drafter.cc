// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/load_drafter.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"
#include "proposer_service/features/dflash.h"
#include "proposer_service/features/eagle.h"
#include "proposer_service/features/eagle3.h"
#include "proposer_service/features/medusa.h"
#include "proposer_service/features/mlp_speculator.h"

namespace foretoken::proposer {
namespace {

struct Method {
  absl::string_view name;
  absl::StatusOr<Drafter> (*load)(const DraftOptions& options);
  bool has_layers = false;  // that the option feature_layers may name; false: it reads the last hidden state
};
constexpr Method kMethods[] = {{"dflash", LoadDflash, true},
                               {"eagle", LoadEagle},
                               {"eagle3", LoadEagle3, true},
                               {"mlp_speculator", LoadMlpSpeculator},
                               {"medusa", LoadMedusa}};

const Method* Find(absl::string_view name) {
  const auto* const method = std::ranges::find(kMethods, name, &Method::name);
  return method == std::end(kMethods) ? nullptr : method;
}

}  // namespace

bool ReadsFeatures(absl::string_view method) { return Find(method) != nullptr; }

absl::Status ValidateFeatureDraft(absl::string_view method, const DraftOptions& options) {
  FT_RETURN_IF_ERROR(Validate(options));
  if (options.target_directory.empty()) {
    return absl::InvalidArgumentError("target: expected the directory of the target's checkpoint, got none");
  }
  std::error_code ignored;
  if (const std::string& directory = options.projection_directory;
      !directory.empty() && !std::filesystem::is_directory(directory, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("projection_directory: expected a directory, got \"", directory, "\""));
  }
  const Method* const known = Find(method);
  FT_CHECK(known != nullptr);
  if (!known->has_layers && !options.feature_layers.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("feature_layers: expected none for ", method,
                                                   ", which reads the last hidden state, got ",
                                                   options.feature_layers));
  }
  if (options.expert_memory_mb) {
    return absl::InvalidArgumentError(absl::StrCat("expert_memory_mb: expected none for ", method,
                                                   ", which has no experts, got ", *options.expert_memory_mb));
  }
  if (options.tensor_parallel == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor_parallel: expected 1 for this method, got ", options.tensor_parallel));
}

absl::StatusOr<Drafter> LoadDrafter(absl::string_view method, const DraftOptions& options) {
  const Method* const known = Find(method);
  FT_CHECK(known != nullptr);
  return known->load(options);
}

}  // namespace foretoken::proposer
