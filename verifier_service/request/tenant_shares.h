// SPDX-License-Identifier: Apache-2.0
// What each tenant may have of the server. Tenants that want more than there is share it by their weights.
//
//   FT_ASSIGN_OR_RETURN(TenantWeights weights, TenantWeights::Load("search=3;batch=0.5"));
//   weights.Of("search");  // 3
//   weights.Of("other");   // 1
//
// Errors: INVALID_ARGUMENT with the entry, and the errors of ReadFile.
// Threads: any, after loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::verifier {

class TenantWeights {
 public:
  TenantWeights() = default;  // every tenant weighs 1

  // `text` is a list of NAME=WEIGHT, separated by ';', or else the path of a file with one NAME=WEIGHT per line, in
  // which lines that begin with '#' do not count. The empty name is the tenant of the requests that name none.
  static absl::StatusOr<TenantWeights> Load(const std::string& text);

  double Of(absl::string_view tenant) const;

 private:
  absl::flat_hash_map<std::string, double> weights_;
};

struct TenantShares {
  TenantWeights weights;
  std::optional<int32_t> max_running_samples;  // of one tenant; unset: all that may run
  std::optional<int64_t> max_queued_tokens;    // of one tenant; unset: all that may wait
};

}  // namespace foretoken::verifier
