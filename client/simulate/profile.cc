// SPDX-License-Identifier: Apache-2.0
#include "client/simulate/profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/simulate/levels.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

using nlohmann::ordered_json;

constexpr int32_t kFormat = 3;
constexpr int64_t kMinSteps = 8;  // of a level; fewer say little
constexpr size_t kMaxRequests = 1000;

// Four buckets from a number of rows to its double.
int32_t RowsBucketIdx(int32_t num_rows) { return static_cast<int32_t>(4 * std::log2(num_rows)); }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::Status Wrong(absl::string_view field, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("profile: ", field, ": expected ", expected));
}

absl::StatusOr<double> NumberOf(const ordered_json& json, const std::string& field, double least) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_number()) return Wrong(field, "a number");
  const double number = found->get<double>();
  if (!std::isfinite(number) || number < least || number > 1e9) return Wrong(field, absl::StrCat(least, " to 1e9"));
  return number;
}

absl::StatusOr<std::vector<ProfileLevel>> LevelsOf(const ordered_json& json, const std::string& field) {
  if (!json.contains(field) || !json[field].is_array() || json[field].empty()) return Wrong(field, "a list of levels");
  std::vector<ProfileLevel> levels;
  for (const ordered_json& entry : json[field]) {
    if (!entry.is_object()) return Wrong(field, "objects");
    ProfileLevel level;
    FT_ASSIGN_OR_RETURN(const double num_sequences, NumberOf(entry, "num_sequences", 1));
    level.num_sequences = static_cast<int32_t>(num_sequences);
    FT_ASSIGN_OR_RETURN(const double num_steps, NumberOf(entry, "num_steps", 1));
    level.num_steps = static_cast<int64_t>(num_steps);
    FT_ASSIGN_OR_RETURN(level.step_ms, NumberOf(entry, "step_ms", 1e-6));
    const auto shares = entry.find("accepted_lengths");
    if (shares == entry.end() || !shares->is_array() || shares->empty()) return Wrong("accepted_lengths", "shares");
    for (const ordered_json& share : *shares) {
      if (!share.is_number() || share.get<double>() < 0) return Wrong("accepted_lengths", "shares of at least 0");
      level.accepted_lengths.push_back(share.get<double>());
    }
    const double sum = std::accumulate(level.accepted_lengths.begin(), level.accepted_lengths.end(), 0.0);
    if (std::abs(sum - 1) > 0.01) return Wrong("accepted_lengths", "shares that add up to 1");
    if (!levels.empty() && levels.back().num_sequences >= level.num_sequences) {
      return Wrong("num_sequences", "rising numbers");
    }
    levels.push_back(std::move(level));
  }
  return levels;
}

absl::StatusOr<std::vector<ProfileRows>> RowsOf(const ordered_json& json) {
  if (!json.contains("rows") || !json["rows"].is_array() || json["rows"].empty()) return Wrong("rows", "a list");
  std::vector<ProfileRows> rows;
  for (const ordered_json& entry : json["rows"]) {
    if (!entry.is_object()) return Wrong("rows", "objects");
    ProfileRows& row = rows.emplace_back();
    FT_ASSIGN_OR_RETURN(row.num_rows, NumberOf(entry, "num_rows", 1));
    FT_ASSIGN_OR_RETURN(row.step_ms, NumberOf(entry, "step_ms", 1e-6));
    if (rows.size() < 2) continue;
    const ProfileRows& before = rows[rows.size() - 2];
    if (before.num_rows >= row.num_rows) return Wrong("num_rows", "rising numbers");
    if (before.step_ms > row.step_ms) return Wrong("rows", "a step_ms that never falls");
  }
  return rows;
}

absl::StatusOr<std::vector<ProfileProposer>> ProposersOf(const ordered_json& json) {
  if (!json.contains("proposers") || !json["proposers"].is_array()) return Wrong("proposers", "a list");
  std::vector<ProfileProposer> proposers;
  for (const ordered_json& entry : json["proposers"]) {
    if (!entry.is_object()) return Wrong("proposers", "objects");
    if (!entry.contains("name") || !entry["name"].is_string()) return Wrong("name", "a text");
    ProfileProposer& proposer = proposers.emplace_back(ProfileProposer{.name = entry["name"].get<std::string>()});
    FT_ASSIGN_OR_RETURN(proposer.proposal_ms, NumberOf(entry, "proposal_ms", 0));
    if (proposers.size() > 1 && proposers[proposers.size() - 2].name >= proposer.name) {
      return Wrong("proposers", "names in alphabetical order");
    }
  }
  return proposers;
}

ordered_json ToJson(const std::vector<ProfileProposer>& proposers) {
  ordered_json json = ordered_json::array();
  for (const ProfileProposer& proposer : proposers) {
    json.push_back({{"name", proposer.name}, {"proposal_ms", proposer.proposal_ms}});
  }
  return json;
}

ordered_json ToJson(const std::vector<ProfileRows>& rows) {
  ordered_json json = ordered_json::array();
  for (const ProfileRows& row : rows) json.push_back({{"num_rows", row.num_rows}, {"step_ms", row.step_ms}});
  return json;
}

ordered_json ToJson(const std::vector<ProfileLevel>& levels) {
  ordered_json json = ordered_json::array();
  for (const ProfileLevel& level : levels) {
    json.push_back({{"num_sequences", level.num_sequences},
                    {"num_steps", level.num_steps},
                    {"step_ms", level.step_ms},
                    {"accepted_lengths", level.accepted_lengths}});
  }
  return json;
}

}  // namespace

absl::StatusOr<Profile> ParseProfile(absl::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("file", "a JSON object");
  FT_ASSIGN_OR_RETURN(const double format, NumberOf(json, "format", 0));
  if (format != kFormat) return Wrong("format", absl::StrCat(kFormat));
  Profile profile;
  if (json.contains("model") && json["model"].is_string()) profile.model = json["model"].get<std::string>();
  FT_ASSIGN_OR_RETURN(profile.speculative, LevelsOf(json, "speculative"));
  FT_ASSIGN_OR_RETURN(profile.plain, LevelsOf(json, "plain"));
  FT_ASSIGN_OR_RETURN(profile.rows, RowsOf(json));
  FT_ASSIGN_OR_RETURN(profile.proposers, ProposersOf(json));
  if (!json.contains("requests") || !json["requests"].is_array() || json["requests"].empty()) {
    return Wrong("requests", "a list");
  }
  for (const ordered_json& entry : json["requests"]) {
    if (!entry.is_object()) return Wrong("requests", "objects");
    FT_ASSIGN_OR_RETURN(const double prompt_tokens, NumberOf(entry, "prompt_tokens", 1));
    FT_ASSIGN_OR_RETURN(const double output_tokens, NumberOf(entry, "output_tokens", 1));
    profile.requests.push_back({static_cast<int32_t>(prompt_tokens), static_cast<int32_t>(output_tokens)});
  }
  return profile;
}

ordered_json ToJson(const Profile& profile) {
  ordered_json requests = ordered_json::array();
  for (const ProfileRequest& request : profile.requests) {
    requests.push_back({{"prompt_tokens", request.prompt_tokens}, {"output_tokens", request.output_tokens}});
  }
  return {{"format", kFormat},
          {"model", profile.model},
          {"rows", ToJson(profile.rows)},
          {"proposers", ToJson(profile.proposers)},
          {"plain", ToJson(profile.plain)},
          {"speculative", ToJson(profile.speculative)},
          {"requests", std::move(requests)}};
}

void ProfileBuilder::Add(std::span<const TimedGeneration> generations, bool is_speculative) {
  const bool is_first_run = requests_.empty();
  std::map<uint64_t, Step> steps;  // by number; a step reports to each of its samples
  for (const TimedGeneration& timed : generations) {
    for (const Sample& sample : timed.generation.samples) {
      if (!sample.completion.has_value()) continue;
      const foretoken::v1::Usage& usage = sample.completion->usage();
      if (is_first_run && requests_.size() < kMaxRequests && usage.completion_tokens() > 0) {
        const auto num_computed =
            static_cast<int32_t>(usage.prompt_tokens()) - static_cast<int32_t>(usage.cached_tokens());
        requests_.push_back({.prompt_tokens = std::max(1, num_computed),
                             .output_tokens = static_cast<int32_t>(usage.completion_tokens())});
      }
      for (const foretoken::v1::StepReport& report : sample.steps) {
        Step& step = steps[report.step()];
        step.num_sequences = static_cast<int32_t>(report.batch().num_sequences());
        step.num_rows = static_cast<int32_t>(report.batch().num_rows());
        step.num_prompt_rows = static_cast<int32_t>(report.batch().num_prompt_rows());
        step.num_tree_rows = static_cast<int32_t>(report.batch().num_tree_rows());
        step.ms = report.times().forward_ms() + report.times().draw_ms() + report.times().host_ms() +
                  report.times().wait_ms();
        if (report.token_ids_size() > 0) step.accepted_lengths.push_back(report.token_ids_size() - 1);
        if (step.num_sequences > 1) continue;
        for (const foretoken::v1::StepProposer& proposer : report.proposers()) {
          if (proposer.has_round_trip_ms()) proposal_ms_[proposer.proposer()].push_back(proposer.round_trip_ms());
        }
      }
    }
  }
  LevelsOfRun& run = is_speculative ? speculative_ : plain_;
  for (const auto& [number, step] : steps) {
    if (step.num_tree_rows == 0 && step.num_rows > 0) {
      RowsBucket& bucket = rows_[RowsBucketIdx(step.num_rows)];
      ++bucket.num_steps;
      bucket.num_rows += step.num_rows;
      bucket.ms += step.ms;
    }
    if (step.num_prompt_rows > 0) continue;
    Level& level = run[step.num_sequences];
    ++level.num_steps;
    level.ms += step.ms;
    for (const int32_t length : step.accepted_lengths) ++level.accepted_lengths[length];
  }
}

// Buckets without a step are left out. Where the mean time falls from one bucket to the next, both become one.
std::vector<ProfileRows> ProfileBuilder::Rows() const {
  std::vector<RowsBucket> buckets;
  const auto mean_ms = [](const RowsBucket& bucket) { return bucket.ms / static_cast<double>(bucket.num_steps); };
  for (const auto& [idx, measured] : rows_) {
    RowsBucket bucket = measured;
    while (!buckets.empty() && mean_ms(buckets.back()) >= mean_ms(bucket)) {
      bucket.num_steps += buckets.back().num_steps;
      bucket.num_rows += buckets.back().num_rows;
      bucket.ms += buckets.back().ms;
      buckets.pop_back();
    }
    buckets.push_back(bucket);
  }
  std::vector<ProfileRows> rows;
  for (const RowsBucket& bucket : buckets) {
    rows.push_back({.num_rows = static_cast<double>(bucket.num_rows) / static_cast<double>(bucket.num_steps),
                    .step_ms = mean_ms(bucket)});
  }
  return rows;
}

// Runs with 2, 4 and 8 clients also have some steps with 3 or 5 sequences, at their ends. These are few, and a step
// that another program held up would count for a level of its own.
std::vector<ProfileLevel> ProfileBuilder::Levels(const LevelsOfRun& run) {
  constexpr int64_t kMinShare = 5;  // a fifth of the fullest level's sequences
  const auto num_drawn = [](const LevelsOfRun::value_type& level) { return level.first * level.second.num_steps; };
  int64_t most_drawn = 0;
  for (const LevelsOfRun::value_type& level : run) most_drawn = std::max(most_drawn, num_drawn(level));
  std::vector<ProfileLevel> levels;
  for (const LevelsOfRun::value_type& entry : run) {
    const auto& [num_sequences, measured] = entry;
    if (measured.num_steps < kMinSteps || measured.accepted_lengths.empty()) continue;
    if (kMinShare * num_drawn(entry) < most_drawn) continue;
    ProfileLevel& level = levels.emplace_back();
    level.num_sequences = num_sequences;
    level.num_steps = measured.num_steps;
    level.step_ms = measured.ms / static_cast<double>(measured.num_steps);
    level.accepted_lengths.resize(measured.accepted_lengths.rbegin()->first + 1);
    int64_t sum = 0;
    for (const auto& [length, num] : measured.accepted_lengths) sum += num;
    for (const auto& [length, num] : measured.accepted_lengths) {
      level.accepted_lengths[length] = static_cast<double>(num) / static_cast<double>(sum);
    }
  }
  return levels;
}

absl::StatusOr<Profile> ProfileBuilder::Build(const std::string& model) const {
  Profile profile = {.model = model,
                     .speculative = Levels(speculative_),
                     .plain = Levels(plain_),
                     .rows = Rows(),
                     .requests = requests_};
  if (profile.speculative.empty() || profile.plain.empty() || profile.rows.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("a profile needs the reports of at least ", kMinSteps,
                                                      " steps; does the server run with --allow_step_reports?"));
  }
  for (const auto& [name, times] : proposal_ms_) {
    profile.proposers.push_back({.name = name, .proposal_ms = Median(times)});
  }
  return profile;
}

}  // namespace foretoken::client
