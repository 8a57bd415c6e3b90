// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/usual_lengths.h"

#include <algorithm>

namespace foretoken::verifier {
namespace {

constexpr double kKeptPart = 15.0 / 16;      // of a moving sum, with every sample
constexpr double kMostTokens = 1024 * 1024;  // that a new tenant's first sample is taken to generate

}  // namespace

void UsualLength::Learn(int32_t num_generated, bool is_cut_short) {
  num_tokens = kKeptPart * num_tokens + num_generated;
  num_ends = kKeptPart * num_ends + (is_cut_short ? 0 : 1);
}

void UsualLengths::Learn(const std::string& tenant, int32_t num_generated, bool is_cut_short) {
  if (num_generated == 0) return;
  const auto known = by_name_.find(tenant);
  if (known == by_name_.end()) {
    // What others generate counts as one end, or a first sample that is cut short would have no end at all.
    tenants_.emplace_front(tenant, UsualLength{.num_tokens = std::min(all_.mean(), kMostTokens), .num_ends = 1});
    by_name_[tenant] = tenants_.begin();
  } else {
    tenants_.splice(tenants_.begin(), tenants_, known->second);
  }
  tenants_.front().second.Learn(num_generated, is_cut_short);
  all_.Learn(num_generated, is_cut_short);
  if (tenants_.size() <= kMaxTenants) return;
  by_name_.erase(tenants_.back().first);
  tenants_.pop_back();
}

const UsualLength* UsualLengths::Find(absl::string_view tenant) const {
  const auto known = by_name_.find(tenant);
  return known == by_name_.end() ? nullptr : &known->second->second;
}

double UsualLengths::Of(absl::string_view tenant) const {
  const UsualLength* const own = Find(tenant);
  return (own == nullptr ? all_ : *own).mean();
}

}  // namespace foretoken::verifier
