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

bool IsMet(const Finding& finding) {
  return finding.value >= finding.at_least.value_or(finding.value) &&
         finding.value <= finding.at_most.value_or(finding.value);
}

// A noisy value alone proves nothing.
bool IsSurelyMissed(const Finding& finding) {
  const Interval interval = finding.interval.value_or(Interval{.low = finding.value, .high = finding.value});
  return (finding.at_least.has_value() && interval.high < *finding.at_least) ||
         (finding.at_most.has_value() && interval.low > *finding.at_most);
}

void PrintRow(const Finding& finding, int width) {
  std::printf("  %-*s %10.2f %-14s", width, finding.what.c_str(), finding.value, finding.unit.c_str());
  if (finding.at_least.has_value()) std::printf(" >= %g", *finding.at_least);
  if (finding.at_most.has_value()) std::printf(" <= %g", *finding.at_most);
  if (finding.interval.has_value()) std::printf(" [%.2f, %.2f]", finding.interval->low, finding.interval->high);
  if (IsBound(finding)) std::printf("  %s", IsMet(finding) ? "ok" : "NOT MET");
  std::printf("\n");
}

nlohmann::json AsJson(const Finding& finding) {
  nlohmann::json json = {{"what", finding.what}, {"value", finding.value}, {"unit", finding.unit}};
  if (finding.at_least.has_value()) json["at_least"] = *finding.at_least;
  if (finding.at_most.has_value()) json["at_most"] = *finding.at_most;
  if (IsBound(finding)) json["met"] = IsMet(finding);
  if (finding.interval.has_value()) json["interval"] = {finding.interval->low, finding.interval->high};
  return json;
}

}  // namespace

void Findings::Add(Finding finding) {
  num_missed_ += IsSurelyMissed(finding) ? 1 : 0;
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
