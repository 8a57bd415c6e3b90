// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/waiting_line.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace foretoken::verifier {

WaitingLine::WaitingLine(absl::Duration priority_aging, TenantShares tenants)
    : priority_aging_(priority_aging), tenants_(std::move(tenants)) {}

const WaitingLine::Entries::value_type* WaitingLine::Next(const std::function<bool(const Entry&)>& may_begin) const {
  for (const auto& [turn, account] : turns_.order()) {
    for (const auto& place_and_entry : static_cast<const TenantLine*>(account)->entries) {
      if (may_begin(place_and_entry.second)) return &place_and_entry;
    }
  }
  return nullptr;
}

bool WaitingLine::Any(const std::function<bool(const Entry&)>& condition) const {
  return std::ranges::any_of(lines_, [&](const auto& line) {
    return std::ranges::any_of(line.second->entries, [&](const auto& entry) { return condition(entry.second); });
  });
}

std::shared_ptr<ActiveRequest> WaitingLine::LastUnbegun(absl::string_view tenant) const {
  const auto line = lines_.find(tenant);
  if (line == lines_.end()) return nullptr;
  const auto& entries = line->second->entries;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->second.preempted == nullptr && entry->second.active->num_begun == 0) return entry->second.active;
  }
  return nullptr;
}

void WaitingLine::Join(std::shared_ptr<ActiveRequest> active, absl::Time now) {
  TenantLine& line = LineOf(active->request->tenant);
  Put(std::move(active), now, line);
  Update(line);
}

void WaitingLine::Return(Sequence& preempted, absl::Time now) {
  preempted.active->place.ReturnSample();
  preempted.advance.num_prompt_rows = std::max(preempted.advance.num_prompt_rows, preempted.num_computed);
  TenantLine& line = LineOf(preempted.request().tenant);
  --line.num_running;
  line.entries.emplace(preempted.line_place, Entry{.active = preempted.active, .preempted = &preempted, .since = now});
  ++num_entries_;
  Update(line);
}

void WaitingLine::Begin(const Entries::value_type& next, Sequence& sequence, absl::Time now) {
  const LinePlace place = next.first;
  const Entry entry = next.second;
  ActiveRequest& active = *entry.active;
  TenantLine& line = LineOf(active.request->tenant);
  const bool is_new = entry.preempted == nullptr;
  // First, because the work counts as long as the tenant waits.
  if (is_new) PayAhead(sequence, /*num_prompt_rows=*/sequence.size() - sequence.num_computed, line);
  ++line.num_running;
  sequence.line_place = place;
  sequence.waited += now - entry.since;
  active.place.BeginSample();
  Take(place, line);
  if (is_new) active.line_place.reset();
  if (is_new && ++active.num_begun < active.request->num_samples) Put(entry.active, now, line);
  Update(line);
}

void WaitingLine::GoOn(Sequence& running) {
  if (running.num_generated() < running.advance.end) return;
  PayAhead(running, /*num_prompt_rows=*/0, LineOf(running.request().tenant));
}

void WaitingLine::Charge(const Sequence& running, double num_tokens) {
  turns_.Charge(LineOf(running.request().tenant), num_tokens);
}

void WaitingLine::End(Sequence& running) {
  TenantLine& line = LineOf(running.request().tenant);
  GiveBackRest(running, line);
  --line.num_running;
  Update(line);
}

void WaitingLine::Leave(ActiveRequest& active) {
  if (!active.line_place.has_value()) return;
  TenantLine& line = LineOf(active.request->tenant);
  Take(*active.line_place, line);
  active.line_place.reset();
  Update(line);
}

void WaitingLine::Leave(Sequence& preempted) {
  TenantLine& line = LineOf(preempted.request().tenant);
  GiveBackRest(preempted, line);
  Take(preempted.line_place, line);
  Update(line);
}

std::optional<double> WaitingLine::UsualTokens(const GenerationRequest& request) const {
  const UsualLength* const usual = usual_.Find(request.tenant);
  if (usual == nullptr) return std::nullopt;
  return std::min<double>(usual->mean(), request.stop.max_tokens);
}

int64_t WaitingLine::EffectivePriority(const Sequence& sequence) const {
  absl::Duration rest;
  return sequence.request().priority + absl::IDivDuration(sequence.waited, priority_aging_, &rest);
}

WaitingLine::TenantLine& WaitingLine::LineOf(const std::string& tenant) {
  std::unique_ptr<TenantLine>& line = lines_[tenant];
  if (line == nullptr) {
    line = std::make_unique<TenantLine>();
    line->name = tenant;
    line->weight = tenants_.weights.Of(tenant);
  }
  return *line;
}

void WaitingLine::Put(std::shared_ptr<ActiveRequest> active, absl::Time now, TenantLine& line) {
  FT_CHECK(!active->line_place.has_value());
  const LinePlace place = {.time = now - active->request->priority * priority_aging_, .number = next_number_++};
  active->line_place = place;
  line.entries.emplace(place, Entry{.active = std::move(active), .since = now});
  ++num_entries_;
}

void WaitingLine::Take(LinePlace place, TenantLine& line) {
  FT_CHECK(line.entries.erase(place) == 1);
  --num_entries_;
  ++num_left_;
}

void WaitingLine::PayAhead(Sequence& sequence, int32_t num_prompt_rows, TenantLine& line) {
  const int32_t num_generated = sequence.num_generated();
  const double usual = std::min<double>(usual_.Of(line.name), sequence.request().stop.max_tokens);
  const int32_t num_tokens = std::max(1, static_cast<int32_t>(usual));
  sequence.advance = {.end = num_generated + num_tokens, .is_paid = turns_.Charge(line, num_prompt_rows + num_tokens)};
}

void WaitingLine::GiveBackRest(Sequence& sequence, TenantLine& line) {
  const int32_t num_generated = sequence.num_generated();
  usual_.Learn(line.name, num_generated, sequence.is_cut_short);
  if (!sequence.advance.is_paid) return;
  const int32_t num_used_rows = std::max(sequence.advance.num_prompt_rows, sequence.num_computed);
  const int32_t num_missing_rows = num_generated == 0 ? sequence.size() - num_used_rows : 0;
  turns_.GiveBack(line, num_missing_rows + std::max(0, sequence.advance.end - num_generated));
}

void WaitingLine::Update(TenantLine& line) {
  const bool wants_turn =
      !line.entries.empty() && line.num_running < tenants_.max_running_samples.value_or(line.num_running + 1);
  if (wants_turn != line.wants_turn) wants_turn ? turns_.Enter(line) : turns_.Leave(line);
  if (line.entries.empty() && line.num_running == 0) lines_.erase(std::string(line.name));
}

}  // namespace foretoken::verifier
