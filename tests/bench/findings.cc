// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/findings.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace foretoken::bench {
namespace {

constexpr int kUsualWidth = 48;

bool IsBound(const Finding& finding) { return finding.at_least.has_value() || finding.at_most.has_value(); }

// Nothing if some values of the interval meet the bound and others do not: a noisy value alone proves nothing.
std::optional<bool> IsMet(const Finding& finding) {
  const Interval interval = finding.interval.value_or(Interval{.low = finding.value, .high = finding.value});
  const double least = finding.at_least.value_or(interval.low), most = finding.at_most.value_or(interval.high);
  if (interval.low >= least && interval.high <= most) return true;
  if (interval.high < least || interval.low > most) return false;
  return std::nullopt;
}

const char* Verdict(std::optional<bool> is_met) {
  if (!is_met.has_value()) return "too noisy to tell";
  return *is_met ? "ok" : "NOT MET";
}

void PrintRow(const Finding& finding, int width) {
  std::printf("  %-*s %10.2f %-14s", width, finding.what.c_str(), finding.value, finding.unit.c_str());
  if (finding.at_least.has_value()) std::printf(" >= %g", *finding.at_least);
  if (finding.at_most.has_value()) std::printf(" <= %g", *finding.at_most);
  if (finding.interval.has_value()) std::printf(" [%.2f, %.2f]", finding.interval->low, finding.interval->high);
  if (IsBound(finding)) std::printf("  %s", Verdict(IsMet(finding)));
  std::printf("\n");
}

nlohmann::json AsJson(const Finding& finding) {
  nlohmann::json json = {{"what", finding.what}, {"value", finding.value}, {"unit", finding.unit}};
  if (finding.at_least.has_value()) json["at_least"] = *finding.at_least;
  if (finding.at_most.has_value()) json["at_most"] = *finding.at_most;
  if (const auto is_met = IsMet(finding); IsBound(finding)) json["met"] = is_met ? nlohmann::json(*is_met) : nullptr;
  if (finding.interval.has_value()) json["interval"] = {finding.interval->low, finding.interval->high};
  return json;
}

}  // namespace

void Findings::Add(Finding finding) {
  num_missed_ += IsMet(finding) == false ? 1 : 0;
  num_open_ += IsMet(finding).has_value() ? 0 : 1;
  if (!prints_as_found_) return findings_.push_back(std::move(finding));
  PrintRow(finding, kUsualWidth);
  std::fflush(stdout);
}

void Findings::Print(bool as_json) const {
  if (as_json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Finding& finding : findings_) all.push_back(AsJson(finding));
    std::printf("%s\n", all.dump(2).c_str());
    return;
  }
  size_t width = 0;
  for (const Finding& finding : findings_) width = std::max(width, finding.what.size());
  for (const Finding& finding : findings_) PrintRow(finding, static_cast<int>(width));
}

}  // namespace foretoken::bench
