// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/compile_places.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {

absl::Status GrammarsFull(absl::string_view what) {
  return base::Passing(
      base::WithReason(absl::ResourceExhaustedError(absl::StrCat("response_format: ", what)), "GRAMMARS_FULL"));
}

absl::StatusOr<CompilePlaces::Place> CompilePlaces::Take(const std::string& tenant) {
  absl::MutexLock lock(&mutex_);
  const auto of_tenant = taken_.find(tenant);
  const int32_t num_of_tenant = of_tenant == taken_.end() ? 0 : of_tenant->second;
  if (num_taken_ >= (num_of_tenant == 0 ? 2 : 1) * num_places_) {
    return GrammarsFull(absl::StrCat(num_taken_, " formats wait to be compiled"));
  }
  if (num_of_tenant >= std::max(num_places_ / 2, 1)) {
    return GrammarsFull(absl::StrCat(num_of_tenant, " formats of this tenant wait to be compiled"));
  }
  ++num_taken_;
  ++taken_[tenant];
  return Place(this, Leave{tenant});
}

void CompilePlaces::GiveBack(const std::string& tenant) {
  absl::MutexLock lock(&mutex_);
  --num_taken_;
  const auto of_tenant = taken_.find(tenant);
  if (--of_tenant->second == 0) taken_.erase(of_tenant);
}

}  // namespace foretoken::verifier
