// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/options.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/flags/type_in_words.h"
#include "common/rpc/status.h"
#include "proposer_service/features/load_drafter.h"

namespace foretoken::proposer {
namespace {

template <typename T>
absl::Status Set(absl::string_view name, absl::string_view text, T& value) {
  std::string ignored;  // the library's error text, which most types leave empty
  if (absl::ParseFlag(text, &value, &ignored)) return absl::OkStatus();
  return rpc::InvalidField(name, absl::StrCat("expected ", flags::TypeInWords<T>(), ", got '", text, "'"));
}

struct Option {
  absl::string_view method;  // empty: all methods
  absl::string_view name;
  absl::Status (*set)(absl::string_view name, absl::string_view text, Config& config);

  absl::string_view short_name() const {
    absl::string_view rest = name;
    if (!method.empty() && absl::ConsumePrefix(&rest, method)) absl::ConsumePrefix(&rest, "_");
    return rest;
  }
};

#define FT_PROPOSER_OPTION(method, type, name, field, help)                                 \
  Option{method, #name, [](absl::string_view key, absl::string_view text, Config& config) { \
           return Set<type>(key, text, config.field);                                       \
         }},
constexpr Option kOptions[] = {
#include "proposer_service/option_list.inc"
};
#undef FT_PROPOSER_OPTION

// The methods that read the target's hidden states have the options of "draft" and of "features".
bool Has(absl::string_view method, const Option& option) {
  if (option.method.empty() || option.method == method) return true;
  return ReadsFeatures(method) && (option.method == "draft" || option.method == "features");
}

absl::StatusOr<const Option*> Find(absl::string_view method, absl::string_view key) {
  std::vector<absl::string_view> known;
  for (const Option& option : kOptions) {
    if (!Has(method, option)) continue;
    if (key == option.name || key == option.short_name()) return &option;
    known.push_back(option.short_name());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("option '", key, "': expected, for ", method, ", one of ", absl::StrJoin(known, ", ")));
}

}  // namespace

absl::StatusOr<Config> ConfigFromOptions(absl::string_view method,
                                         std::span<const std::pair<std::string, std::string>> options) {
  // An embedded proposer has one stream, the verifier's.
  Config config = {.method = std::string(method), .limits = {.max_stream_share = 1}};
  FT_RETURN_IF_ERROR(ValidateMethod(config.method));
  std::vector<const Option*> given;
  for (const auto& [key, text] : options) {
    FT_ASSIGN_OR_RETURN(const Option* option, Find(method, key));
    if (std::find(given.begin(), given.end(), option) != given.end()) {
      return rpc::InvalidField(key, absl::StrCat("expected once, got it again, as '", text, "'"));
    }
    given.push_back(option);
    FT_RETURN_IF_ERROR(option->set(key, text, config));
  }
  return config;
}

absl::Status CheckFlags(absl::string_view method, const std::vector<absl::string_view>& flags) {
  FT_RETURN_IF_ERROR(ValidateMethod(method));
  std::vector<absl::string_view> known;
  for (const Option& option : kOptions) {
    if (Has(method, option)) known.push_back(option.name);
  }
  for (const absl::string_view flag : flags) {
    if (std::find(known.begin(), known.end(), flag) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": expected, for --method=", method, ", one of --", absl::StrJoin(known, ", --")));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::proposer
