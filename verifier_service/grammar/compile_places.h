// SPDX-License-Identifier: Apache-2.0
// The places for requests whose response formats wait to be compiled or are being compiled. One tenant takes at most
// half of them. A tenant that has none also gets one when they are all taken, until there are twice as many. So a few
// tenants cannot keep the others out.
//
//   FT_ASSIGN_OR_RETURN(CompilePlaces::Place place, places.Take("team"));
//
// Errors: RESOURCE_EXHAUSTED, GRAMMARS_FULL, if no place is free.
// Threads: any. The places outlive what was taken of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::verifier {

// RESOURCE_EXHAUSTED, GRAMMARS_FULL, "response_format: WHAT". The same request may succeed a moment later.
absl::Status GrammarsFull(absl::string_view what);

class CompilePlaces {
 private:
  struct Leave {
    std::string tenant;
    void operator()(CompilePlaces* places) const { places->GiveBack(tenant); }
  };

 public:
  // Free again when it is destroyed.
  using Place = std::unique_ptr<CompilePlaces, Leave>;

  explicit CompilePlaces(int32_t num_places) : num_places_(num_places) {}

  absl::StatusOr<Place> Take(const std::string& tenant);

 private:
  void GiveBack(const std::string& tenant);

  const int32_t num_places_;
  absl::Mutex mutex_;
  std::map<std::string, int32_t> taken_ ABSL_GUARDED_BY(mutex_);  // by tenant, above 0
  int32_t num_taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace foretoken::verifier
