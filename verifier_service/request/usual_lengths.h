// SPDX-License-Identifier: Apache-2.0
// How many tokens a tenant's samples generate lately. The last kMaxTenants tenants are remembered, whether or not they
// have a request now. So a tenant that sends one request at a time is judged by its own outputs.
//
//   lengths.Learn("team", 30, /*is_cut_short=*/false);
//   lengths.Of("team");    // between 30 and what all tenants' samples generate
//   lengths.Find("other"); // null
//
// Units: tokens. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace foretoken::verifier {

// A sample that its deadline has cut short counts with its tokens and not as an end, which is the estimate of a mean
// lifetime where some lives are not seen to their ends. Otherwise the more samples die, the shorter the others would
// seem.
struct UsualLength {
  double num_tokens = 16 * 64, num_ends = 16;  // moving sums; at first a guess of 64 tokens

  void Learn(int32_t num_generated, bool is_cut_short);
  double mean() const { return num_tokens / num_ends; }
};

class UsualLengths {
 public:
  static constexpr size_t kMaxTenants = 4096;

  // A sample has ended after so many tokens. With none it says nothing, as when it was refused.
  void Learn(const std::string& tenant, int32_t num_generated, bool is_cut_short);
  // Of the tenant's samples; null: none has ended.
  const UsualLength* Find(absl::string_view tenant) const;
  // The tenant's mean, or that of all tenants where it has none.
  double Of(absl::string_view tenant) const;

 private:
  using Tenants = std::list<std::pair<std::string, UsualLength>>;

  UsualLength all_;
  Tenants tenants_;  // the tenant of the last end first
  absl::flat_hash_map<std::string, Tenants::iterator> by_name_;
};

}  // namespace foretoken::verifier
