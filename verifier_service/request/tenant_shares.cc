// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/tenant_shares.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error_text.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

namespace foretoken::verifier {
namespace {

constexpr double kMinWeight = 0.001, kMaxWeight = 1000;

struct Entry {
  absl::string_view tenant;
  double weight = 0;
};

// The weight begins behind the last '=', because a name may contain one.
absl::StatusOr<Entry> ParseEntry(absl::string_view text) {
  const size_t equals = text.rfind('=');
  double weight = 0;
  const bool has_weight = equals != absl::string_view::npos && absl::SimpleAtod(text.substr(equals + 1), &weight);
  if (!has_weight || !(weight >= kMinWeight && weight <= kMaxWeight)) {
    return absl::InvalidArgumentError(absl::StrCat("expected NAME=WEIGHT with a weight from ", kMinWeight, " to ",
                                                   kMaxWeight, ", got ", base::Quoted(text)));
  }
  return Entry{.tenant = text.substr(0, equals), .weight = weight};
}

}  // namespace

absl::StatusOr<TenantWeights> TenantWeights::Load(const std::string& text) {
  TenantWeights weights;
  const bool is_list = text.empty() || absl::StrContains(text, '=');
  std::string contents = text;
  if (!is_list) {
    FT_ASSIGN_OR_RETURN(contents, base::ReadFile(text));
  }
  for (absl::string_view line : absl::StrSplit(contents, is_list ? ';' : '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || (!is_list && line.front() == '#')) continue;
    FT_ASSIGN_OR_RETURN(const Entry entry, ParseEntry(line));
    if (!weights.weights_.try_emplace(entry.tenant, entry.weight).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected one weight for each tenant, got two for ", base::Quoted(entry.tenant)));
    }
  }
  return weights;
}

double TenantWeights::Of(absl::string_view tenant) const {
  const auto found = weights_.find(tenant);
  return found == weights_.end() ? 1 : found->second;
}

}  // namespace foretoken::verifier
